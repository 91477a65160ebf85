// SPDX-License-Identifier: MIT
/*
 * uring.c - timers in a loop around an io_uring, without a library
 *
 *	uring [TIMERS]
 *
 * The ring takes TWHEEL_IOC_SUBMIT as a command, so that what is to be armed or cancelled
 * goes to the kernel with all else. One multishot read, from Linux 6.7 on, has each record
 * put into a buffer of a group when its timer fires; older kernels are asked for each
 * read.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/twheel.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TIMERS	1000
#define GROUP		1
#define BUFFERS		16	/* a power of two */
#define RECORDS		4	/* for which a buffer has room */

/* As the kernel has it; the headers of liburing may be older. */
#define READ_MULTISHOT	49

static struct io_uring ring;
static struct twheel_event buffers[BUFFERS][RECORDS];
static struct io_uring_buf_ring *group;
static bool multishot;
static int wheel, nr_reads;

static void give_buffer(unsigned int i)
{
	io_uring_buf_ring_add(group, buffers[i], sizeof(buffers[i]), i,
			      io_uring_buf_ring_mask(BUFFERS), 0);
	io_uring_buf_ring_advance(group, 1);
}

/* Leaves multishot false where the kernel has no such reads. */
static void set_up_buffers(void)
{
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = GROUP };
	struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
	unsigned int i;

	multishot = probe && io_uring_opcode_supported(probe, READ_MULTISHOT);
	io_uring_free_probe(probe);
	if (!multishot)
		return;
	group = aligned_alloc(sysconf(_SC_PAGESIZE), sysconf(_SC_PAGESIZE));
	if (!group)
		err(1, "buffers");
	io_uring_buf_ring_init(group);
	reg.ring_addr = (uintptr_t)group;
	if (io_uring_register_buf_ring(&ring, &reg, 0))
		errx(1, "buffers");
	for (i = 0; i < BUFFERS; i++)
		give_buffer(i);
}

/* A multishot read goes on until it is told that it has ended. */
static void prepare_read(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	io_uring_prep_read(sqe, wheel, multishot ? NULL : buffers[0],
			   multishot ? 0 : sizeof(buffers[0]), -1);
	nr_reads++;
	if (multishot) {
		sqe->opcode = READ_MULTISHOT;
		sqe->flags = IOSQE_BUFFER_SELECT;
		sqe->buf_group = GROUP;
	}
}

/* The next completion, which is the caller's until io_uring_cqe_seen(). */
static struct io_uring_cqe *completion(void)
{
	struct io_uring_cqe *cqe;
	int ret;

	do {
		ret = io_uring_submit_and_wait(&ring, 1);
		if (ret >= 0)
			ret = io_uring_peek_cqe(&ring, &cqe);
	} while (ret == -EINTR || ret == -EAGAIN);
	if (ret)
		errx(1, "ring: %s", strerror(-ret));
	return cqe;
}

/* A signal may cut the array short. Each operation has its own result. */
static void submit(struct twheel_op *ops, int nr)
{
	struct twheel_submit arg = { .size = sizeof(arg) };
	struct twheel_command command = { .arg = (uintptr_t)&arg };

	while (nr) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		struct io_uring_cqe *cqe;
		int i;

		arg.ops = (uintptr_t)ops;
		arg.nr = nr;
		io_uring_prep_rw(IORING_OP_URING_CMD, sqe, wheel, NULL, 0, TWHEEL_IOC_SUBMIT);
		memcpy((char *)sqe + offsetof(struct io_uring_sqe, cmd), &command, sizeof(command));
		cqe = completion();
		if (cqe->res <= 0)
			errx(1, "command: %s", strerror(-cqe->res));
		for (i = 0; i < cqe->res; i++)
			if (ops[i].res < 0)
				errx(1, "timer %d: %s", i, strerror(-ops[i].res));
		ops += cqe->res;
		nr -= cqe->res;
		io_uring_cqe_seen(&ring, cqe);
	}
}

/* How many records the completion of a read brings. */
static int take_records(const struct io_uring_cqe *cqe)
{
	unsigned int i, buffer = multishot ? cqe->flags >> IORING_CQE_BUFFER_SHIFT : 0;
	unsigned int nr = cqe->res / (int)sizeof(struct twheel_event);

	for (i = 0; i < nr; i++) {
		const struct twheel_event *ev = &buffers[buffer][i];

		printf("timer %llu, %llu us late\n", (unsigned long long)ev->user_data,
		       (unsigned long long)(ev->fired_ns - ev->expires_ns) / 1000);
	}
	if (multishot)
		give_buffer(buffer);
	return nr;
}

int main(int argc, char **argv)
{
	static struct twheel_op ops[MAX_TIMERS];
	char *end = "";
	long i, left, nr = argc > 1 ? strtol(argv[1], &end, 10) : 20;

	if (argc > 2 || *end || nr < 2 || nr > MAX_TIMERS)
		errx(2, "usage: uring [TIMERS], 2 to %d", MAX_TIMERS);
	wheel = open("/dev/twheel", O_RDWR | O_CLOEXEC);
	if (wheel < 0)
		err(1, "/dev/twheel");
	i = io_uring_queue_init(8, &ring, 0);
	if (i)
		errx(1, "no io_uring: %s", strerror(-i));
	set_up_buffers();

	for (i = 0; i < nr; i++)
		ops[i] = (struct twheel_op){
			.opcode = TWHEEL_OP_ARM,
			.flags = TWHEEL_F_REL,
			.user_data = i + 1,
			.expires_ns = (i + 1) * 10000000ULL,
		};
	submit(ops, nr);
	/* The first, the third and so on are not wanted after all. */
	for (i = 0; i < nr; i += 2)
		ops[i / 2] = (struct twheel_op){ .opcode = TWHEEL_OP_CANCEL, .id = ops[i].id };
	submit(ops, (nr + 1) / 2);

	prepare_read();
	for (left = nr / 2; left > 0;) {
		struct io_uring_cqe *cqe = completion();

		if (cqe->res > 0)
			left -= take_records(cqe);
		else if (cqe->res != -ENOBUFS)	/* with which no record is lost */
			errx(1, "read: %s", strerror(-cqe->res));
		if (left > 0 && !(cqe->flags & IORING_CQE_F_MORE))
			prepare_read();
		io_uring_cqe_seen(&ring, cqe);
	}
	printf("%ld records by %d %s\n", nr / 2, nr_reads, multishot ? "multishot reads" : "reads");
	return 0;
}
