#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Jobs that are handed over to RabbitMQ, and what happens if that is not as it should be. TAP."""

import argparse
import os
import re
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))

from cluster import Cluster, is_reported     # noqa: E402
from rabbit import Rabbit       # noqa: E402

TESTS = []
LONG = 240


def test(name):
    def add(fn):
        TESTS.append((name, fn))
        return fn
    return add


class World:
    """A cluster of one node, and a broker, for all tests: each has services and queues of its
    own."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.c = Cluster(nodes=0, consumers=1)
        self.rabbit = None
        self.reported = set()
        try:
            self.rabbit = Rabbit(self.c.folder)
            self.node = self.add_node()
        except BaseException:
            self.close()
            raise

    def add_node(self, *options, url=None):
        node = self.c.add_node(options=["drain_ms=5000", "poll_ms=1000",
                                        "amqp=" + (url or self.rabbit.url), *options])
        if not self.c.wait(node.is_ready, LONG):
            raise RuntimeError("the node does not get ready")
        return node

    def replace_node(self, node, *options, url=None):
        self.remove_node(node)
        return self.add_node(*options, url=url)

    def remove_node(self, node):
        node.kill()
        node.proxy.close()
        self.c.nodes.remove(node)

    def service(self, name, target, **more):
        more = {"kind": "amqp", "target": target, "backoff_ms": 200, "backoff_max_ms": 1000, **more}
        self.c.sql("insert into twheel.service (service, %s) values ('%s', %s); "
                   "select pg_notify('twheel_service', '')" % (
                       ", ".join(more), name, ", ".join("'%s'" % v for v in more.values())))

    def with_queue(self, name, *most, **more):
        """A service whose jobs get to the queue of that name, and who has them."""
        self.rabbit.peer("queue", name, *most)
        self.service(name, "/" + name, **more)
        return self.rabbit.consume(name)

    def submit(self, service, payload="''", delay="0"):
        return int(self.c.sql("select twheel.submit('%s', clock_timestamp() + interval '%s s', %s)"
                              % (service, delay, payload)))

    def wait(self, condition):
        return self.c.wait(condition, LONG)

    def state(self, job):
        return self.c.sql("select state from twheel.job_delay_task_backlog where job = %d "
                          "union all select state from twheel.job_delay_task where id = %d"
                          % (job, job))

    def is_finished(self, job):
        return self.wait(lambda: self.state(job) == "finished")

    def messages(self, job):
        """Of its attempts that are over."""
        return self.c.rows("select outcome, coalesce(message, '') "
                           "from twheel.job_delay_task_execlog where job = %d order by attempt"
                           % job)

    def metric(self, name, node=None):
        text = (node or self.node).request("GET", "/metrics")[1].decode()
        found = re.search(r"^twheel_%s (\S+)$" % name, text, re.M)
        return float(found[1]) if found else None

    def logged(self, text, node=None):
        with open((node or self.node).log, encoding="utf-8") as f:
            return f.read().count(text)

    def returned(self, service):
        return int(self.c.sql("select count(*) from twheel.job_delay_task_execlog where service = "
                              "'%s' and message like '%%NO_ROUTE%%'" % service))

    def is_empty(self, service):
        """Nothing is owed of it."""
        return self.c.sql("select count(*) from twheel.job_delay_task where service = '%s'"
                          % service) == "0"

    def failed(self, job, pattern):
        """Waits for an attempt with such a message; "" if there is one."""
        seen = []

        def look():
            seen[:] = self.messages(job)
            return any(re.search(pattern, m) for _, m in seen)
        return "" if self.wait(look) else "there is none in %s" % seen

    def new_reports(self):
        """Of sanitizers: the logs with one that was not told of before."""
        found = set()
        for name in os.listdir(self.c.folder):
            path = os.path.join(self.c.folder, name)
            if re.fullmatch("[a-z][.]log", name) and path not in self.reported:
                with open(path, encoding="utf-8") as f:
                    found |= {path} if is_reported(f.read()) else set()
        self.reported |= found
        return found

    def close(self):
        if self.rabbit:
            self.rabbit.close()
        self.c.close()


def differs(got, expected):
    return "" if got == expected else "got %r and not %r" % (got, expected)


@test("a job is finished when the broker has confirmed its message")
def finish(w):
    w.with_queue("plain")
    job = w.submit("plain")
    return "" if w.is_finished(job) else "it is not: %s" % w.messages(job)


@test("a message has the bytes of its payload, whatever they are")
def payload(w):
    consumer = w.with_queue("bytes")
    job = w.submit("bytes", "decode('00ff0d0a2200c328', 'hex')")
    w.wait(lambda: job in consumer.jobs)
    return differs(consumer.jobs[job][0]["body"], "00ff0d0a2200c328")


@test("a message may have 1 MiB")
def large(w):
    consumer = w.with_queue("large")
    job = w.submit("large", "decode(repeat('00ff10', 349525) || '7f', 'hex')")
    w.wait(lambda: job in consumer.jobs)
    return differs(consumer.jobs[job][0]["body"] == "00ff10" * 349525 + "7f", True)


@test("a message says which job and attempt it is of, and has the service's headers")
def properties(w):
    consumer = w.with_queue("told", headers='{"X-A": "b", "content-type": "text/plain"}')
    at, idem = w.c.rows("select to_char(at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), "
                        "floor(extract(epoch from at)) || ' ' || idem from twheel.job "
                        "where id = %d" % w.submit("told", "'y'", "5"))[0]
    w.wait(lambda: consumer.got)
    got = dict(consumer.got[0])
    for name in "at", "redelivered", "twheel-job":
        got.pop(name)
    return differs(got, {
        "mode": 2, "timestamp": int(idem.split()[0]), "id": idem.split()[1], "type": "text/plain",
        "service": "told", "app": "twheeld", "exchange": "", "key": "told", "twheel-attempt": 1,
        "twheel-fence": 1, "twheel-at": at, "X-A": "b", "body": "79"})


@test("a message gets to the queues of its exchange by its routing key")
def exchange(w):
    w.rabbit.peer("exchange", "ex")
    w.rabbit.peer("queue", "bound")
    w.rabbit.peer("bind", "bound", "ex", "a.b/c")
    w.service("routed", "ex/a.b/c")
    consumer = w.rabbit.consume("bound")
    job = w.submit("routed")
    return "" if w.wait(lambda: job in consumer.jobs) else "it does not: %s" % w.messages(job)


@test("no message is sent before its time")
def early(w):
    consumer = w.with_queue("early")
    w.c.submit(w.node, "early", 300, 1500, 3000)
    jobs = {job: at for job, (service, at) in w.c.submitted.items() if service == "early"}
    w.wait(lambda: len(consumer.jobs) == len(jobs))
    return differs([j for j, at in jobs.items() if consumer.jobs[j][0]["at"] < at - 0.000002], [])


@test("a job that was cancelled before its time has no message")
def cancel(w):
    consumer = w.with_queue("cancelled")
    jobs = [w.submit("cancelled", delay="3") for _ in range(2)]
    status, _ = w.node.request("DELETE", "/v1/jobs/%d" % jobs[0])
    w.wait(lambda: jobs[1] in consumer.jobs)
    return differs((status, list(consumer.jobs)), (200, jobs[1:]))


@test("a message that no queue takes is tried again, and says so")
def unroutable(w):
    w.rabbit.peer("unqueue", "nowhere")
    w.service("nowhere", "/nowhere")
    job = w.submit("nowhere")
    wrong = w.failed(job, "no queue is bound for it: 312 NO_ROUTE")
    w.rabbit.peer("queue", "nowhere")
    return wrong or ("" if w.is_finished(job) else "it is not when there is one")


@test("a message that was returned does not take another one's confirm")
def return_among(w):
    """On one channel, as they are of one service."""
    w.rabbit.peer("unqueue", "among")
    w.service("among", "/among", concurrency=1000)
    w.c.submit(w.node, "among", 50, 500)
    returned = w.wait(lambda: w.returned("among") >= 5)
    w.rabbit.peer("queue", "among")
    w.wait(lambda: w.is_empty("among"))
    consumer = w.rabbit.consume("among")
    w.wait(lambda: len(consumer.jobs) == 50)
    return differs((returned, len(consumer.jobs)), (True, 50))


@test("a message that a full queue refuses is tried again until it has room")
def full(w):
    w.rabbit.peer("queue", "full", 2)
    w.service("full", "/full")
    jobs = [w.submit("full") for _ in range(6)]
    refused = w.wait(lambda: w.metric("amqp_refused_total") >= 4)
    consumer = w.rabbit.consume("full")
    done = all([w.is_finished(job) for job in jobs])
    w.wait(lambda: len(consumer.jobs) == 6)
    return differs((refused, done, set(consumer.jobs)), (True, True, set(jobs)))


@test("what goes to an exchange that was deleted says so, and comes when there is one again")
def redeclared(w):
    w.rabbit.peer("exchange", "gone")
    w.rabbit.peer("queue", "behind")
    w.rabbit.peer("bind", "behind", "gone", "k")
    w.service("gone", "gone/k")
    first = w.submit("gone")
    done = w.is_finished(first)
    w.rabbit.peer("unexchange", "gone")
    job = w.submit("gone")
    wrong = w.failed(job, "the broker closed the channel: 404 NOT_FOUND")
    w.rabbit.peer("exchange", "gone")
    w.rabbit.peer("bind", "behind", "gone", "k")
    return wrong or ("" if done and w.is_finished(job) else "it does not come")


@test("an exchange that is not there fails no message of another service")
def channels(w):
    consumer = w.with_queue("beside")
    w.service("missing", "missing/k", backoff_ms=1, backoff_max_ms=1, max_attempts=1000)
    w.submit("missing")
    w.c.submit(w.node, "beside", 500, 500, 2000)
    w.wait(lambda: len(consumer.jobs) == 500)
    w.c.sql("update twheel.service set paused = true where service = 'missing'; "
            "select pg_notify('twheel_service', '')")
    return differs(w.c.sql("select count(*) from twheel.job_delay_task_execlog "
                           "where service = 'beside' and outcome <> 'done'"), "0")


@test("what may have been sent is not sent again at most once")
def at_most_once(w):
    w.service("once", "missing/k", delivery="at_most_once")
    job = w.submit("once")
    w.wait(lambda: w.state(job) == "failed")
    return differs([o for o, _ in w.messages(job)], ["failed"])


@test("10,000 messages come once each")
def many(w):
    consumer = w.with_queue("many", concurrency=2000, timeout_ms=200000)
    begin = time.time() + 1
    for _ in range(10):
        w.c.submit(w.node, "many", 1000, 0, begin=begin)
    w.wait(lambda: len(consumer.jobs) == 10000)
    end = max(m["at"] for m in consumer.got)
    print("# %.0f/s" % (len(consumer.got) / (end - begin)))
    return differs((len(consumer.jobs), len(consumer.got)), (10000, 10000))


@test("a node whose broker does not want its password says so, and tries again only now and then")
def password(w):
    w.with_queue("secret")
    w.node = w.replace_node(w.node, url=w.rabbit.url.replace("guest:guest", "guest:wrong"))
    job = w.submit("secret")
    w.c.sql("update twheel.service set timeout_ms = 4000 where service = 'secret'")
    wrong = w.failed(job, "ACCESS_REFUSED") if w.wait(
        lambda: w.logged("ACCESS_REFUSED")) else "it does not"
    tries = w.logged("amqp-down")
    w.node = w.replace_node(w.node)
    # Each pause is at least as long as all before.
    return wrong or ("%d times" % tries if tries > 9 else "")


@test("the password may be in a file, which is read anew")
def password_file(w):
    path = os.path.join(w.c.folder, "password")
    with open(path, "w", encoding="ascii") as f:
        f.write("wrong\n")
    w.with_queue("file")
    w.node = w.replace_node(w.node, "amqp_password_file=" + path)
    job = w.submit("file")
    refused = w.wait(lambda: w.logged("ACCESS_REFUSED"))
    with open(path, "w", encoding="ascii") as f:
        f.write("guest\n")
    done = w.is_finished(job)
    w.node = w.replace_node(w.node)
    return differs((refused, done), (True, True))


@test("a broker whose certificate is signed by the right one is used by TLS")
def tls(w):
    consumer = w.with_queue("tls")
    w.node = w.replace_node(w.node, "amqp_ca=" + os.path.join(w.rabbit.folder, "cert.pem"),
                            url="amqps://guest:guest@localhost:%d/" % w.rabbit.tls_port)
    job = w.submit("tls", "decode(repeat('00ff10', 100000), 'hex')")
    came = w.wait(lambda: job in consumer.jobs)
    w.node = w.replace_node(w.node)
    return "" if came else "it is not: %s" % w.messages(job)


@test("a broker whose certificate is signed by somebody else is not used")
def tls_other(w):
    consumer = w.with_queue("untrusted", timeout_ms=8000)
    w.node = w.replace_node(w.node, url="amqps://guest:guest@localhost:%d/" % w.rabbit.tls_port)
    job = w.submit("untrusted")
    wrong = w.failed(job, "(?i)certificate|SSL|TLS")
    early_ones = list(consumer.jobs)
    w.node = w.replace_node(w.node)
    return wrong or differs(early_ones, [])


@test("a broker that lacks memory gets nothing meanwhile, and what waits when it has some")
def blocked(w):
    w.with_queue("blocked", timeout_ms=LONG * 1000)
    w.rabbit.set_memory(0)
    first = w.submit("blocked")     # a broker tells when it gets something
    told = w.wait(lambda: w.metric("amqp_blocked") == 1)
    jobs = [w.submit("blocked") for _ in range(3)]
    waits = w.wait(lambda: w.metric("amqp_queued") == 3)
    w.rabbit.set_memory(0.4)
    done = all([w.is_finished(job) for job in [first] + jobs])
    return differs((told, waits, done, w.metric("amqp_blocked")), (True, True, True, 0))


@test("what waits in a node that loses its lease is not sent by it")
def lease(w):
    consumer = w.with_queue("leased", timeout_ms=LONG * 1000)
    w.rabbit.set_memory(0)
    before = w.metric("amqp_confirmed_total")
    w.submit("leased")
    w.wait(lambda: w.metric("amqp_blocked") == 1)
    job = w.submit("leased")
    w.wait(lambda: w.metric("amqp_queued") == 1)
    w.node.proxy.stall()
    w.wait(lambda: w.metric("lease_valid") == 0)
    w.rabbit.set_memory(0.4)
    w.wait(lambda: w.metric("calls_running") == 0)
    sent = w.metric("amqp_confirmed_total") - before    # the other one was before
    is_valid = w.metric("lease_valid")
    w.node.proxy.go_on()
    done = w.is_finished(job) and w.wait(lambda: job in consumer.jobs)
    return differs((sent, is_valid, done), (1, 0, True))


@test("a broker that stands still does not hold up calls and queues")
def stopped(w):
    """Nor itself the end of an attempt."""
    consumer = w.with_queue("still", timeout_ms=1500)
    w.is_finished(w.submit("still"))
    w.rabbit.stop()
    try:
        jobs = [w.submit("still", "decode(repeat('00', 900000), 'hex')") for _ in range(20)]
        others = [w.submit(s, delay="1") for s in ("queue", "http")]
        moved = all([w.is_finished(job) for job in others])
        over = w.failed(jobs[0], "no confirm in time|no time was left")
    finally:
        w.rabbit.go_on()
    done = all([w.is_finished(job) for job in jobs])
    came = w.wait(lambda: set(jobs) <= set(consumer.jobs))
    return over or differs((moved, done, came), (True, True, True))


@test("a node that is drained while its broker stands still ends in time, and loses nothing")
def drain_still(w):
    consumer = w.with_queue("drained", timeout_ms=60000)
    w.is_finished(w.submit("drained"))
    w.rabbit.stop()
    try:
        jobs = [w.submit("drained", "decode(repeat('00', 900000), 'hex')") for _ in range(20)]
        w.wait(lambda: w.c.sql("select count(*) from twheel.job where state = 1") == "20")
        w.node.signal(signal.SIGTERM)
        status = w.node.process.wait(LONG)
    finally:
        w.rabbit.go_on()
    w.node = w.replace_node(w.node)
    done = all([w.is_finished(job) for job in jobs])
    came = w.wait(lambda: set(jobs) <= set(consumer.jobs))
    return differs((status, done, came), (0, True, True))


@test("what a node without a connection has not sent is ready again as soon as it is drained")
def drain_down(w):
    w.with_queue("unsent", timeout_ms=3600000)
    w.node = w.replace_node(w.node, url=w.rabbit.url.replace("guest:guest", "guest:wrong"))
    job = w.submit("unsent")
    queued = w.wait(lambda: w.metric("amqp_queued") == 1)
    w.node.signal(signal.SIGTERM)
    w.node.process.wait(LONG)
    state = w.state(job)
    w.node = w.replace_node(w.node)
    return differs((queued, state, w.is_finished(job)), (True, "ready", True))


@test("a node that is drained with messages in flight records all that is confirmed")
def drain(w):
    consumer = w.with_queue("flight", concurrency=1000)
    w.c.submit(w.node, "flight", 1000, 1500, 1000)
    w.wait(lambda: len(consumer.jobs) > 10)
    w.node.signal(signal.SIGTERM)
    status = w.node.process.wait(LONG)
    first = {job for job, ms in list(consumer.jobs.items())}
    w.node = w.replace_node(w.node)
    w.wait(lambda: len(consumer.jobs) == 1000)
    twice = [job for job, ms in consumer.jobs.items() if len(ms) > 1]
    print("# %d before" % len(first))
    return differs((status, len(consumer.jobs), twice), (0, 1000, []))


@test("a broker that is killed and comes back loses nothing")
def killed(w):
    consumer = w.with_queue("killed", concurrency=1000)
    w.c.submit(w.node, "killed", 600, 1000, 6000)
    w.wait(lambda: len(consumer.jobs) > 100)
    w.rabbit.kill()
    w.wait(lambda: w.metric("amqp_connected") == 0)
    w.rabbit.start()
    settled = w.wait(lambda: w.is_empty("killed"))
    w.wait(lambda: len(consumer.jobs) == 600)
    return differs((settled, len(consumer.jobs)), (True, 600))


@test("nodes and a broker that are killed again and again miss no job, and have none early")
def ledger(w):
    consumer = w.with_queue("ledger", concurrency=1000, timeout_ms=5000)
    others = [w.add_node(), w.add_node()]
    for i in range(w.rounds):
        w.c.submit(w.node, "ledger", 500, 2000, 10000)
        time.sleep(4)
        others[0].kill()
        w.rabbit.kill()
        w.remove_node(others.pop(0)) if others[0].process.poll() is None else w.c.nodes.remove(
            others.pop(0))
        w.rabbit.start()
        others.append(w.add_node())
        del i
    jobs = {job: at for job, (service, at) in w.c.submitted.items() if service == "ledger"}
    w.wait(lambda: w.is_empty("ledger"))
    w.wait(lambda: set(jobs) <= set(consumer.jobs))
    missed = set(jobs) - set(consumer.jobs)
    soon = [job for job, at in jobs.items() if job in consumer.jobs
            and min(m["at"] for m in consumer.jobs[job]) < at - 0.000002]
    twice = sum(len(ms) > 1 for ms in consumer.jobs.values())
    for node in others:
        w.remove_node(node)
    print("# %d jobs, %d came twice" % (len(jobs), twice))
    return differs((missed, soon), (set(), []))


def run(w, number, name, fn):
    begin = time.monotonic()
    try:
        wrong = fn(w)
    except Exception:    # of a test, which is not to end the others
        wrong = "it broke"
        for line in traceback.format_exc().splitlines():
            print("# " + line)
    reports = w.new_reports()
    if reports:
        wrong = ("a sanitizer reports something; " + wrong).strip("; ")
    print("%sok %d - %s # %.0f s" % ("not " * bool(wrong), number, name,
                                     time.monotonic() - begin))
    if wrong:
        print("# " + wrong)
        for path in reports or {w.node.log}:
            with open(path, encoding="utf-8") as f:
                for line in f.read().splitlines()[-40 if reports else -15:]:
                    print("#   " + line)
    sys.stdout.flush()
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    tests = [t for t in TESTS if not args.words or any(word in t[0] for word in args.words)]
    print("1..%d" % len(tests))
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *args: sys.exit(1))
    w = World(args.rounds)
    try:
        good = [run(w, number, name, fn) for number, (name, fn) in enumerate(tests, 1)]
    finally:
        w.close()
    return 0 if all(good) else 1


sys.exit(main())
