# SPDX-License-Identifier: GPL-2.0
"""Processes that stand still, a standby that is promoted, a disk that is full, and what goes on
for long."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from cluster import HERE, TWHEELD, Psql, boottime, percentiles
from suite import Skip, check, fill_socket, is_freed, load, test


def stop_with_lock(c, goes_on):
    """The answer of its mark is held up by the proxy, until the backend waits for the socket."""
    node = c.nodes[0]
    uuid = fill_socket(c, node, lambda: node.proxy.stall(
        up=False, only=lambda startup: b" fire" in startup))
    if not uuid:
        return "no backend waits for it"
    node.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    load(c, nodes=c.nodes[1:], delay_ms=0)
    freed = is_freed(c, uuid)
    if goes_on:
        time.sleep(max(0, stopped + 10 - time.monotonic()))
        node.proxy.go_on()
        node.signal(signal.SIGCONT)
    return check(c, twice_allowed=True) if freed else "its shards are not taken"


@test("a node that is stopped for 10 s while it has shards locked does no harm")
def stop_with_lock_10_s(c):
    return stop_with_lock(c, True)


@test("a node that is stopped for good while it has shards locked does no harm", slow=True)
def stop_with_lock_for_good(c):
    return stop_with_lock(c, False)


@test("a backend of a node that is stopped for 12 s does no harm")
def stop_backend(c):
    """Of two nodes: what begins things, and what tells that the node is alive."""
    load(c)
    time.sleep(3)
    pids = [c.nodes[0].backend("fire"), c.nodes[1].backend("lease")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(12)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return check(c, twice_allowed=True)


# ---------------------------------------------------------------- a standby


class Standby:
    """Synchronous, of the PostgreSQL of a cluster."""

    def __init__(self, c):
        self.c, self.old = c, c.pg
        self.pg = os.path.join(c.folder, "standby")
        c.others.append(self.pg)
        with open(os.path.join(c.pg, "data", "pg_hba.conf"), "a", encoding="utf-8") as f:
            f.write("local replication all trust\n")
        c.sql("alter system set synchronous_standby_names = '*'")
        subprocess.run(["pg_basebackup", "-D", os.path.join(self.pg, "data"), "-R", "-X", "stream",
                        "-c", "fast", "-d", "host=%s port=5432 user=postgres" % c.pg], check=True,
                       capture_output=True)
        subprocess.run(["chown", "-R", "--reference", os.path.join(c.pg, "data"), self.pg],
                       check=True)
        c.postgres("start", *c.pg_options, pg=self.pg)
        c.sql("select pg_reload_conf()")
        if not c.wait(lambda: c.sql("select sync_state from pg_stat_replication") == "sync"):
            raise RuntimeError("the standby does not come up")

    def receiver(self):
        """Its process."""
        return int(subprocess.run(
            ["psql", "-XAtqd", "host=%s port=5432 user=postgres dbname=postgres" % self.pg, "-c",
             "select pid from pg_stat_wal_receiver"], check=True, capture_output=True,
            text=True).stdout)

    def promote(self):
        self.c.others.append(self.c.pg)
        self.c.pg = self.pg
        self.c.sql("select pg_promote()")
        # There is none behind it.
        self.c.sql("alter system reset synchronous_standby_names")
        self.c.sql("select pg_reload_conf()")


def with_standby(c, **more):
    standby = Standby(c)
    conninfo = ("host=%s,%s port=5432,5432 user=postgres dbname=postgres "
                "target_session_attrs=read-write" % (c.pg, standby.pg))
    for _ in range(3):
        c.add_node(conninfo=conninfo, **more)
    return standby if c.ready() else None


@test("a synchronous standby that is promoted has all that was answered, and nothing is done twice",
      nodes=0)
def failover(c):
    standby = with_standby(c)
    if not standby:
        return "they do not get ready"
    uuids = {n.uuid() for n in c.nodes}
    load(c)
    time.sleep(4)
    c.postgres("kill")
    standby.promote()
    wrong = check(c, twice_allowed=True)
    if wrong:
        return wrong
    same = uuids & {node for node, in c.rows("select node from twheel.node")}
    return "%d of them do not join anew" % len(same) if same else ""


@test("nothing is answered that only the old server of a failover has", nodes=0)
def failover_unanswered(c):
    """Though the database says that a commit need not wait for the standby, and the old server is
    there again: nodes that find it first have no answers from it."""
    standby = with_standby(c)
    if not standby:
        return "they do not get ready"
    c.sql("alter system set synchronous_commit = 'local'")
    c.sql("select pg_reload_conf()")
    load(c, nr=300)
    time.sleep(1)
    receiver = standby.receiver()
    os.kill(receiver, signal.SIGSTOP)
    clients = [threading.Thread(target=lambda n=n: load(c, nr=60, nodes=[n])) for n in c.nodes]
    for client in clients:
        client.start()
    time.sleep(3)
    before = len(c.submitted)
    c.postgres("kill")
    # It ends before it reads what is in its socket, which never came over the network.
    os.kill(receiver, signal.SIGTERM)
    os.kill(receiver, signal.SIGCONT)
    standby.promote()
    for client in clients:
        client.join()
    # It thinks that it is the server, and waits for a standby that does not come.
    c.postgres("start", *c.pg_options, pg=standby.old)
    print("# %d had been answered" % before)
    for n in c.nodes[1:]:
        n.kill()
        n.start()
    time.sleep(8)
    c.postgres("kill", pg=standby.old)
    return check(c, twice_allowed=True)


@test("no result is lost to the old server of a failover", nodes=0, timeout_ms=20000)
def failover_old_server(c):
    """That is up again, and all that the connections for results find for a while."""
    standby = Standby(c)
    nodes = [c.add_node() for _ in range(2)]
    if not c.ready():
        return "they do not get ready"
    for n in nodes:
        n.server = lambda startup: standby.old if b" finish" in startup else c.pg
    c.postgres("kill")
    standby.promote()
    c.postgres("start", *c.pg_options, pg=standby.old)
    if not c.ready():
        return "they do not get ready again"
    load(c, nr=200, delay_ms=1000, spread_ms=3000)
    time.sleep(6)
    for n in nodes:
        n.server = lambda startup: c.pg
    return check(c)


# ---------------------------------------------------------------- a disk


@contextlib.contextmanager
def small_disk():
    """Its folder is the tool. Skipped where nothing can be mounted."""
    folder = tempfile.mkdtemp()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", folder], check=True,
                       capture_output=True)
    except (OSError, subprocess.CalledProcessError) as why:
        os.rmdir(folder)
        raise Skip("nothing can be mounted") from why
    os.chmod(folder, 0o755)
    try:
        yield {"tool": folder}
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        os.rmdir(folder)


@contextlib.contextmanager
def on_small_disk():
    """PostgreSQL is."""
    with small_disk() as more:
        yield {"pg": os.path.join(more["tool"], "pg"), "tool": more["tool"],
               "pg_options": ["-c", "min_wal_size=32MB", "-c", "max_wal_size=32MB"]}


def submit_to_full(c, leave):
    """Until none is accepted for some time. Which statuses there were."""
    filler = os.path.join(c.tool, "filler")
    free = os.statvfs(c.tool)
    with open(filler, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, max(4096, free.f_bavail * free.f_frsize - leave))
    statuses = []
    for i in range(60):
        jobs = [{"service": "queue", "delay_ms": 2000, "payload": os.urandom(10000).hex()}] * 20
        status, answer = c.nodes[i % 3].submit(jobs)
        statuses.append(status)
        if status == 201:
            for job in answer["jobs"]:
                c.submitted[int(job["id"])] = "queue", time.time() - 1
    time.sleep(5)
    os.unlink(filler)
    print("# submits got %s" % {s: statuses.count(s) for s in statuses})
    return set(statuses)


def full_disk(c, leave):
    load(c)
    time.sleep(3)
    statuses = submit_to_full(c, leave)
    try:
        c.sql("select 1")
    except RuntimeError:
        c.postgres("kill")
        c.postgres("start", *c.pg_options)
    wrong = check(c, twice_allowed=True)
    return wrong or ("" if 503 in statuses and statuses <= {201, 503} else
                     "submits got %s" % statuses)


@test("what is accepted while there is less and less room for the log is there",
      around=on_small_disk)
def full_log(c):
    """PostgreSQL ends when there is none, and is started again when there is."""
    return full_disk(c, 3 << 20)


@test("what is accepted while there is less and less room for jobs is there", around=small_disk)
def full_table(c):
    """PostgreSQL goes on."""
    place = os.path.join(c.tool, "tablespace")
    os.mkdir(place)
    subprocess.run(["chown", "--reference", os.path.join(c.pg, "data"), place], check=True)
    c.sql("create tablespace small location '%s'" % place)
    c.sql("alter table twheel.job set tablespace small")
    return full_disk(c, 2 << 20)


# ---------------------------------------------------------------- a snapshot that is pinned


@test("jobs go on while nothing is vacuumed for a minute", slow=True,
      pg_options=("-c", "autovacuum=off"))
def pinned(c):
    pin = subprocess.Popen(["psql", "-XAtq", "-d", c.conninfo()], stdin=subprocess.PIPE, text=True,
                           stdout=subprocess.DEVNULL)
    pin.stdin.write("begin isolation level repeatable read; select count(*) from twheel.job;\n")
    pin.stdin.flush()
    try:
        for i in range(6):
            start, before = time.monotonic(), set(c.submitted)
            for n in c.nodes:
                for service in "queue", "http":
                    c.submit(n, service, 500, 1500, 7000)
            time.sleep(max(0, start + 10 - time.monotonic()))
            new = set(c.submitted) - before
            done = int(c.sql("select count(*) from twheel.job_delay_task_execlog where job > %d"
                             % max(before, default=0)))
            late = c.sql("select round((percentile_cont(0.5) within group (order by late_ms))"
                         "::numeric, 1) || ' / ' || round((percentile_cont(0.99) within group "
                         "(order by late_ms))::numeric, 1) from twheel.job_delay_task_execlog "
                         "where job > %d" % max(before, default=0))
            print("# %d s: %d of %d, lateness p50 / p99 %s ms, dead %s" % (
                10 * (i + 1), done, len(new), late, c.sql(
                    "select string_agg(relname || ' ' || n_dead_tup, ', ') from "
                    "pg_stat_user_tables where relname in ('job', 'queue')")), flush=True)
    finally:
        pin.kill()
        pin.wait()
    return check(c)


# ---------------------------------------------------------------- what is promised besides


def report(node, job, token, outcome):
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=20)
    connection.request("POST", "/v1/jobs/%d/result" % job, json.dumps({"outcome": outcome}),
                       {"Content-Type": "application/json", "Twheel-Token": token})
    return connection.getresponse().status


@test("what was answered with 202 ends by a report or its deadline, and by no late report",
      accept_ms=4000, backoff_ms=1, backoff_max_ms=1)
def accepted(c):
    """Of each three jobs one is reported as done, one as failed, and one not in time. The node
    that called is not there any more by then."""
    tokens = {}

    def act(headers, _body):
        tokens[int(headers["Twheel-Job"]), int(headers["Twheel-Attempt"])] = headers["Twheel-Token"]
        return 202 if headers["Twheel-Attempt"] == "1" else 200
    c.consumer.act = act
    c.submit(c.nodes[0], "http", 30, 500)
    jobs = sorted(c.submitted)
    if not c.wait(lambda: c.sql("select count(*) from twheel.job where state = 2") == "30", 30):
        return "they are not accepted"
    c.nodes[0].kill()
    answers = set()
    for i, job in enumerate(jobs):
        if i % 3 < 2:
            answers.add((i % 3, report(c.nodes[1], job, tokens[job, 1],
                                       "failed" if i % 3 else "done")))
    wrong = check(c, twice_allowed=True)
    for job in jobs:
        answers.add((3, report(c.nodes[2], job, tokens[job, 1], "done")))
    times = {(job, attempt): at for job, attempt, _, _, at, _ in c.consumer.journal}
    attempts = [sum(1 for j, _ in times if j == job) for job in jobs]
    if not wrong and attempts != [1, 2, 2] * 10:
        wrong = "attempts %s" % attempts
    if not wrong and min(times[job, 2] - times[job, 1] for job in jobs[2::3]) < 4:
        wrong = "one is given up before its deadline"
    if not wrong and answers != {(0, 200), (1, 200), (3, 409)}:
        wrong = "reports got %s" % answers
    return wrong


@test("a report of an attempt that was given up changes nothing", nodes=1, accept_ms=1000,
      backoff_ms=1, backoff_max_ms=1)
def late_report(c):
    """While the next attempt is accepted."""
    tokens = {}
    c.consumer.act = lambda headers, _: (tokens.__setitem__(
        int(headers["Twheel-Attempt"]), headers["Twheel-Token"]), 202)[1]
    c.submit(c.nodes[0], "http", 1, 0)
    if not c.wait(lambda: len(tokens) > 1, 30):
        return "it is not given up"
    status = report(c.nodes[0], max(c.submitted), tokens[1], "done")
    return "it got %d" % status if status != 409 else ""


@test("who may do nothing but send notifications does not hold up a service", nodes=1,
      rate_per_s=20)
def flood(c):
    """Of jobs that there are not; each would take its turn among those of the service."""
    c.sql("create role nobody login")
    service = c.sql("select id from twheel.service where service = 'http'")
    stop = threading.Event()

    def send():
        nobody = Psql(c.conninfo().replace("user=postgres", "user=nobody"))
        first = 10 ** 12
        while not stop.wait(0.01):
            nobody.sql("select count(pg_notify('twheel_job', concat_ws(' ', i % 64, i, "
                       "(extract(epoch from clock_timestamp()) * 1000000)::bigint, {}, 0, 0, 0))) "
                       "from generate_series({}, {}) i".format(service, first, first + 49))
            first += 50

    thread = threading.Thread(target=send)
    thread.start()
    try:
        time.sleep(1)
        c.submit(c.nodes[0], "http", 100, 0)
        # Without those it takes 5 s. None of them would be called before the others end.
        good = c.wait(lambda: len(c.consumer.journal) >= 100, 30)
    finally:
        stop.set()
        thread.join()
    return check(c) if good else "only %d were called" % len(c.consumer.journal)


@test("large payloads that were announced are read by few at a time", nodes=1, concurrency=1000)
def large(c):
    c.sql("select count(twheel.submit('http', at => now() + interval '3 s', "
          "payload => convert_to(repeat('x', 1 << 20), 'UTF8'))) from generate_series(1, 200)")
    c.wait(lambda: len(c.consumer.journal) >= 200, 60)
    with open("/proc/%d/status" % c.nodes[0].process.pid, encoding="ascii") as f:
        most = int(re.search(r"VmHWM:\s+(\d+)", f.read())[1]) >> 10
    nr = len(c.consumer.journal)
    limit = 400 if "sanitize" in TWHEELD else 100    # which keep for a while what was freed
    return "" if nr == 200 and most < limit else "%d were called, with %d MiB" % (nr, most)


@test("an order key has one job in flight, in order, whoever takes over", timeout_ms=1000,
      backoff_ms=1, backoff_max_ms=1)
def order_keys(c):
    calls = []

    def act(_headers, body):
        key, nr = json.loads(body)
        began = boottime()
        time.sleep(0.1)
        calls.append((key, began, boottime(), nr))
        return 200
    c.consumer.act = act
    at = time.time() + 3
    for key in range(12):
        node = c.nodes[key % 3]
        status, answer = node.submit([
            {"service": "http", "order_key": "key %d" % key, "payload": [key, nr], "delay_ms":
             (at - time.time()) * 1000 // 1 + 10 * nr} for nr in range(40)])
        if status != 201:
            return "a submit got %d" % status
        for job in answer["jobs"]:
            c.submitted[int(job["id"])] = "http", at - 1
    time.sleep(max(0, at + 1 - time.time()))
    c.nodes[0].kill()
    time.sleep(1)
    c.nodes[0].start()
    time.sleep(6)
    c.nodes[1].signal(signal.SIGSTOP)
    time.sleep(8)
    c.nodes[1].signal(signal.SIGCONT)
    wrong = check(c, twice_allowed=True)
    last = {}
    for key, began, ended, nr in sorted(calls):
        if key in last and began < last[key][0] and nr != last[key][1]:
            wrong += "; two in flight"
        if key in last and nr < last[key][1]:
            wrong += "; %d after %d" % (nr, last[key][1])
        last[key] = ended, nr
    return wrong[:300]


def churn(c, end):
    """Each 2 s one comes and one goes."""
    load(c, nr=900, spread_ms=18000)
    gone = []
    for i in range(8):
        c.add_node()
        time.sleep(1)
        gone.append(c.nodes.pop(0))
        end(gone[-1], i)
        c.submit(c.nodes[0], "queue", 20, 1000)
        c.submit(c.nodes[1], "http", 20, 1000)
        time.sleep(1)
    for node in gone:
        node.process.wait(30)
        node.proxy.close()


@test("nodes that come and are drained lose nothing, and nothing is called twice")
def churn_drained(c):
    churn(c, lambda node, i: node.signal(signal.SIGTERM))
    return check(c)


@test("nodes that come, and are killed or drained, lose nothing", slow=True)
def churn_killed(c):
    churn(c, lambda node, i: node.signal(signal.SIGTERM if i % 2 else signal.SIGKILL))
    return check(c, twice_allowed=True)


def in_memory(node):
    found = re.search(rb"^twheel_jobs_in_memory (\d+)", node.request("GET", "/metrics")[1], re.M)
    return int(found.group(1)) if found else 0


def by_node(c, old):
    c.nodes = [c.add_node(options=old.options)]
    c.wait(c.nodes[0].is_ready)
    time.sleep(1)
    old.signal(signal.SIGTERM)
    c.wait(lambda: old.process.poll() is not None)
    old.proxy.close()


def by_process(c, old):
    old.replace()


def replace(c, how):
    """While a job is due each 10 ms. How late these were, sorted."""
    before = set(c.submitted)
    c.submit(c.nodes[0], "queue", 1000, 1000, 10000)
    time.sleep(2)
    how(c, c.nodes[0])
    jobs = set(c.submitted) - before
    c.wait(lambda: int(c.sql("select count(*) from app.got where job >= %d" % min(jobs)))
           >= len(jobs))
    at = {int(job): float(at) for job, at in c.rows("select job, extract(epoch from at) "
                                                    "from app.got")}
    return sorted((at[job] - c.submitted[job][1]) * 1000 for job in jobs if job in at)


@test("memory that has room for few jobs has those that are due first", nodes=1,
      options=("max_in_memory=200", "poll_ms=60000"))
def due_first(c):
    c.wait(lambda: c.nodes[0].metric("looks_total"))
    now = time.time()
    for nr, at in (500, now + 15), (50, now + 5):
        for (job,) in c.rows("select twheel.submit('queue', to_timestamp(%f), announce => false) "
                             "from generate_series(1, %d)" % (at, nr)):
            c.submitted[int(job)] = "queue", at
    c.sql("select pg_notify('twheel_job', 'look')")
    wrong = check(c, seconds=30)
    late = c.sql("select count(*) from app.got where at > due + interval '9 seconds'")
    return wrong or ("" if late == "0" else "%s were late" % late)


@test("a node that is replaced while it has many jobs in memory loses nothing", nodes=1, slow=True,
      options=("poll_ms=60000",))
def replaced(c):
    """TWHEEL_WAITING says how many; and what difference these make is printed."""
    nr = int(os.environ.get("TWHEEL_WAITING", "100000"))
    for how in by_node, by_process:
        print("# %s, without others in memory: lateness %s" % (
            how.__name__, percentiles(replace(c, how))))
    c.sql("insert into twheel.job (due, at, service, shard) select t, t, s.id, i %% 64 "
          "from generate_series(1, %d) i, twheel.service s, lateral (select now() + "
          "interval '115 seconds' + i * interval '1 us') r(t) where s.service = 'queue'" % nr)
    # Anything has nodes look, which they would in a minute.
    c.sql("select pg_notify('twheel_job', '')")
    for how in by_node, by_process:
        if not c.wait(lambda: in_memory(c.nodes[0]) >= nr):
            return "they are not in memory"
        print("# %s, with %d: lateness %s" % (how.__name__, nr, percentiles(replace(c, how))))
    c.sql("truncate twheel.job")
    return check(c)


@contextlib.contextmanager
def next_version():
    """A build that knows a schema more is the tool."""
    top = os.path.abspath(os.path.join(HERE, "../../.."))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(top, "jobs"), os.path.join(folder, "jobs"))
        for part in "lib", "uapi", "VERSION":
            os.symlink(os.path.join(top, part), os.path.join(folder, part))
        path = os.path.join(folder, "jobs", "node.h")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(r"(#define SCHEMA_MAX\s+)(\d+)",
                           lambda m: m.group(1) + str(int(m.group(2)) + 1), text))
        subprocess.run(["make", "-s", "-C", os.path.join(folder, "jobs"),
                        os.path.join(folder, "build/jobs/twheeld"),
                        "OUTPUT=" + os.path.join(folder, "build/jobs"),
                        "LIBTWHEEL=" + os.path.join(top, "build/lib")], check=True)
        yield {"tool": os.path.join(folder, "build/jobs/twheeld")}


@test("nodes of two versions run together, also when the schema is the next one", slow=True,
      around=next_version)
def two_versions(c):
    c.nodes.pop().kill()
    new = c.add_node(twheeld=c.tool)
    if not c.ready():
        return "they do not get ready"
    most = {name: int(n) for name, n in c.rows("select name, schema_max from twheel.node")}
    if most[new.name] != most["a"] + 1:
        return "it is no other version"
    load(c)
    time.sleep(5)
    c.sql("update twheel.cluster set schema = schema + 1")
    c.submit(c.nodes[0], "queue", 50, 2000)
    time.sleep(3)
    c.nodes[0].proxy.cut()
    wrong = check(c)
    # What cannot live with it is not let in again.
    alone = c.wait(lambda: c.sql("select string_agg(distinct n.name, ' ' order by n.name) from "
                                 "twheel.shard s join twheel.node n on n.node = s.owner")
                   == "b " + new.name, 30)
    return wrong or ("" if alone else "the one that is too old has shards")


@test("a node that cannot live with the schema does not ask for it all the time", nodes=1)
def other_schema(c):
    c.sql("update twheel.cluster set schema = 1000")
    c.nodes[0].proxy.cut()
    c.wait(lambda: "not_usable=schema" in c.nodes[0].said(), 30)
    time.sleep(5)
    asked = c.nodes[0].said().count("not_usable=schema")
    c.sql("update twheel.cluster set schema = 1")
    if asked > 10:
        return "it has asked %d times in 5 s" % asked
    load(c, nr=300, spread_ms=3000)
    return check(c)


@test("jobs are done in time while many wait")
def many_wait(c):
    """TWHEEL_WAITING says how many."""
    nr = int(os.environ.get("TWHEEL_WAITING", "100000"))
    start = time.monotonic()
    c.sql("insert into twheel.job (due, at, service, shard, payload) "
          "select t, t, s.id, i %% 64, '\\x00' from generate_series(1, %d) i, "
          "twheel.service s, lateral (select now() + interval '1 hour' + random() * "
          "interval '30 days') r(t) where s.service = 'queue'; analyze twheel.job" % nr)
    print("# %d jobs of %s were made in %.0f s" % (nr, c.sql(
        "select pg_size_pretty(pg_total_relation_size('twheel.job'))"), time.monotonic() - start))
    c.sql("checkpoint")
    # Of nodes, and not of consumers.
    c.stopping = True
    time.sleep(10)
    count = "select xact_commit from pg_stat_database where datname = current_database()"
    seconds = 30 if nr > 1000000 else 5
    before = int(c.sql(count))
    time.sleep(seconds)
    done = int(c.sql(count)) - before - 1
    sizes = []
    for n in c.nodes:
        with open("/proc/%d/status" % n.process.pid, encoding="ascii") as f:
            sizes += [int(line.split()[1]) // 1024 for line in f if line.startswith("VmRSS")]
    print("# idle: %.2f transactions a second and node; memory of nodes %s MiB" % (
        done / seconds / len(c.nodes), sizes))
    c.stopping = False
    for _ in range(2):
        threading.Thread(target=c.consume, daemon=True).start()
    load(c, nr=3000)
    c.wait(lambda: int(c.sql("select count(*) from twheel.backlog")) >= len(c.submitted), 90)
    if c.sql("select count(*) from twheel.job") != str(nr):
        return "not all of them wait"
    c.sql("truncate twheel.job")
    return check(c)
