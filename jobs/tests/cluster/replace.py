# SPDX-License-Identifier: GPL-2.0
"""Processes that are replaced by others, on SIGHUP."""

import contextlib
import http.client
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import threading
import time

from cluster import BACKEND, Psql, Successor, free_port
from suite import check, load, test


def owners(c):
    return c.rows("select shard, owner, fence from twheel.shard order by shard")


@test("a process that takes over has all jobs in memory and reads none", nodes=1,
      options=("poll_ms=20000",))
def read_none(c):
    c.wait(lambda: c.nodes[0].metric("looks_total"))
    c.submit(c.nodes[0], "queue", 2000, 8000, 10000)
    c.submit(c.nodes[0], "http", 1000, 8000, 10000)
    before = owners(c)
    if not c.nodes[0].replace():
        return "it is not replaced"
    looked, here = c.nodes[0].metric("looked_jobs_total"), c.nodes[0].metric("jobs_in_memory")
    if looked != 0 or here != 3000:
        return "%s rows were read, and %s jobs are in memory" % (looked, here)
    if owners(c) != before:
        return "shards have changed hands"
    if ("wheel=adopted" in c.nodes[0].said()) != (BACKEND == "device"):
        return "the wheel was not handed over"
    return check(c)


@test("nodes that are replaced again and again lose nothing, and nothing is called twice")
def again(c):
    load(c, nr=1800)
    before = [row[1:] for row in owners(c)]
    for i in range(9):
        if not c.nodes[i % 3].replace():
            return "it is not replaced"
    if [row[1:] for row in owners(c)] != before:
        return "shards have changed hands"
    return check(c)


@test("calls that are under way when a process is replaced end there", nodes=1, concurrency=100)
def calls(c):
    c.consumer.act = lambda headers, body: time.sleep(3) or 200
    c.submit(c.nodes[0], "http", 60, 0)
    c.wait(lambda: len(c.consumer.journal) == 60)
    old = c.nodes[0].process.pid
    if not c.nodes[0].replace():
        return "it is not replaced"
    if c.nodes[0].process.pid == old:
        return "it is the same process"
    return check(c)


@test("a call that fails where it was made is tried again where its job is", nodes=1,
      backoff_ms=100, concurrency=100)
def tried_again(c):
    def act(headers, body):
        if headers["Twheel-Attempt"] == "1":
            time.sleep(2)
            return 500
        return 200

    c.consumer.act = act
    c.submit(c.nodes[0], "http", 60, 0)
    c.wait(lambda: len(c.consumer.journal) == 60)
    if not c.nodes[0].replace():
        return "it is not replaced"
    return check(c, twice_allowed=True)


def ask(c, port, failures, count):
    """On a connection for as long as there is one, as clients do: whether the node is ready, and
    to take a job."""
    conn = None
    while not c.tool:
        conn = conn or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        begun = conn.sock is None
        try:
            conn.request("GET", "/readyz")
            r = conn.getresponse()
            body = r.read()
            if r.status != 200:
                failures.append("%d %s" % (r.status, body))
            if r.getheader("Connection") == "close":
                conn.close()
            begun = conn.sock is None
            at = int(time.time()) + 2
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
            conn.request("POST", "/v1/jobs", json.dumps({"service": "queue", "at": stamp}),
                         {"Content-Type": "application/json"})
            r = conn.getresponse()
            body = r.read()
            count.append(1)
            if r.status != 201:
                failures.append("%d %s" % (r.status, body))
            else:
                c.submitted[int(json.loads(body)["id"])] = "queue", at
            if r.getheader("Connection") == "close":
                conn.close()
        except (OSError, http.client.HTTPException) as why:
            # Who closes a connection that is kept may do so while a request comes.
            if begun or not isinstance(why, (http.client.RemoteDisconnected,
                                             ConnectionResetError, BrokenPipeError)):
                failures.append(repr(why))
            conn.close()
        time.sleep(random.random() / 100)


@test("no request is refused, and none forgotten, while processes are replaced", nodes=1,
      options=("poll_ms=60000",))
def submits(c):
    failures, count = [], []
    threads = [threading.Thread(target=ask, args=(c, c.nodes[0].port, failures, count))
               for _ in range(16)]
    for thread in threads:
        thread.start()
    replaced = all([c.nodes[0].replace() for _ in range(5)])
    c.tool = "enough"
    for thread in threads:
        thread.join()
    print("# %d submits" % len(count))
    if not replaced or failures:
        return "replaced: %s; %d failures, as %s" % (replaced, len(failures), failures[:3])
    # What nobody was told of is found by a look, in a minute.
    return check(c, seconds=30)


def reconfigure(node, **options):
    """Starts it with these in a file, which a successor reads again."""
    node.signal(signal.SIGTERM)
    node.process.wait()
    node.configure(**options)
    node.start()
    return node.cluster.ready()


@test("a successor whose configuration is wrong ends, and all goes on", nodes=1)
def wrong_configuration(c):
    node = c.nodes[0]
    reconfigure(node, keep_days=10)
    node.configure(keep_days="few")
    load(c, nr=300, spread_ms=3000)
    process = node.process
    successor, begin = node.begin_replace()
    if not c.wait(lambda: "replace failed=" in node.said(begin), 30):
        return "nothing is told of it"
    if process.poll() is not None or successor.poll() is None:
        return "the wrong one has ended"
    node.configure(keep_days=20)
    return check(c) or ("" if node.replace() else "then it is not replaced")


@test("a successor that is killed at any time does no harm", nodes=1)
def killed_successor(c):
    node = c.nodes[0]
    taken = 0
    load(c, nr=900, spread_ms=12000)
    for i in range(12):
        successor, begin = node.begin_replace()
        time.sleep(random.random() * 0.12)
        successor.kill()
        c.wait(lambda: "replace failed=" in node.said(begin) or
               "hand-over" in node.said(begin), 30)
        # Too late: it was the node by then.
        if "hand-over" in node.said(begin):
            c.wait(lambda: node.process.poll() is not None, 30)
            taken += 1
            node.start()
            c.wait(node.is_ready)
    print("# %d were killed when they had taken over" % taken)
    return check(c, twice_allowed=True)


@test("a predecessor that is killed at any time does no harm", nodes=1)
def killed_predecessor(c):
    node = c.nodes[0]
    load(c, nr=900, spread_ms=12000)
    for i in range(6):
        successor, _ = node.begin_replace()
        time.sleep(random.random() * 0.2)
        node.kill()
        node.process = successor
        if not c.wait(node.is_ready, 40):
            return "the successor does not go on"
    return check(c, twice_allowed=True)


@test("a successor waits for its database, and the next one does not wait for it", nodes=1)
def waits(c):
    node = c.nodes[0]
    load(c, nr=300, spread_ms=5000)
    c.postgres("stop")
    first, _ = node.begin_replace()
    time.sleep(1)
    second, begin = node.begin_replace()
    time.sleep(1)
    if first.poll() is None or second.poll() is not None:
        return "the wrong one has ended"
    c.postgres("start")
    if not c.wait(lambda: "take-over node=" in node.said(begin), 40):
        return "it is not replaced"
    node.process = second
    return check(c)


@test("a node that is to end while it is replaced ends, and its successor", nodes=2)
def ends(c):
    load(c, nr=600, spread_ms=10000)
    for delay in 0, 0.03, 0.06, 0.09, 0.2:
        old = c.nodes[0].process
        successor, _ = c.nodes[0].begin_replace()
        time.sleep(delay)
        old.send_signal(signal.SIGTERM)
        successor.send_signal(signal.SIGTERM)
        if not c.wait(lambda: old.poll() is not None and successor.poll() is not None, 30):
            return "one of them does not end"
        c.nodes[0].start()
        c.wait(c.nodes[0].is_ready)
    return check(c)


@test("a successor of another layout joins anew, and nothing is called twice", nodes=1)
def other_layout(c):
    """As if: the magic is changed in the program itself."""
    node = c.nodes[0]
    node.kill()
    program = os.path.join(c.folder, "twheeld")
    shutil.copy(node.twheeld, program)
    node.twheeld = program
    node.start()
    c.wait(node.is_ready)
    with open(program, "rb") as f:
        text = f.read()
    if b"twheeld1" not in text:
        return "the layout has no name in the program"
    with open(program + ".new", "wb") as f:
        f.write(text.replace(b"twheeld1", b"twheeld0"))
    os.chmod(program + ".new", 0o755)
    os.rename(program + ".new", program)
    load(c, nr=300, spread_ms=6000)
    successor, begin = node.begin_replace()
    if not c.wait(lambda: node.process.poll() is not None, 40):
        return "it does not end"
    node.process = successor
    if "not_taken=" not in node.said(begin):
        return "it was taken"
    return check(c)


@test("systemd is told which process it is, and when it has taken over", nodes=1)
def systemd(c):
    node = c.nodes[0]
    path = os.path.join(c.folder, "notify")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    listener.settimeout(20)
    node.kill()
    node.env = dict(node.env, NOTIFY_SOCKET=path, WATCHDOG_USEC="2000000")
    node.start()
    c.wait(node.is_ready)
    node.env["WATCHDOG_PID"] = "1"    # which the successor is not to have
    if listener.recv(256) != b"READY=1":
        return "it does not tell that it is ready"
    old = node.process
    if not node.replace():
        return "it is not replaced"
    told = []
    while not told or told[-1] != b"READY=1":
        message = listener.recv(256)
        if message != b"WATCHDOG=1":
            told.append(message)
    if told != [b"RELOADING=1", b"MAINPID=%d" % node.process.pid, b"READY=1"]:
        return "it was told %s" % told
    # The old one has ended.
    if old.poll() is None or listener.recv(256) != b"WATCHDOG=1":
        return "the watchdog is not told"
    return check(c)


ACTOR = """#!%s
import os, signal, socket, struct, time
s = socket.socket(fileno=3)
def say(what):
    s.send(struct.pack("I20x", what))
def hear():
    return struct.unpack("I20x", s.recv(24))[0]
HELLO, READY, GIVE, TAKEN, ANEW, LOOK, STANDS = range(7)
assert hear() == HELLO
%s
"""


def install(c, node, act):
    """What is to be started as its successor from now on: a program in the place of its own, with
    the statements of Python that are given; or twheeld again."""
    if not node.twheeld.startswith(c.folder):
        original, node.twheeld = node.twheeld, os.path.join(c.folder, "twheeld-" + node.name)
        shutil.copy(original, node.twheeld)
        shutil.copy(original, node.twheeld + ".original")
        node.kill()
        node.start()
        c.ready()
    if act:
        with open(node.twheeld + ".new", "w", encoding="utf-8") as f:
            f.write(ACTOR % (sys.executable, act))
        os.chmod(node.twheeld + ".new", 0o755)
    else:
        shutil.copy(node.twheeld + ".original", node.twheeld + ".new")
    os.rename(node.twheeld + ".new", node.twheeld)


@test("a successor that says what it must not, or too much, is ended, and all goes on", nodes=1)
def wrong_successors(c):
    node = c.nodes[0]
    install(c, node, None)
    load(c, nr=600, spread_ms=8000)
    for act in ("say(TAKEN); time.sleep(60)", "say(LOOK); time.sleep(60)",
                "say(77); time.sleep(60)",
                "s.send(b'x'); time.sleep(60)", "s.send(bytes(100)); time.sleep(60)",
                "say(READY); hear(); say(READY); time.sleep(60)",
                "say(READY); hear(); say(HELLO); time.sleep(60)", "say(READY); hear()",
                "say(READY)", "s.close(); time.sleep(60)",
                "raise SystemExit(77)"):
        install(c, node, act)
        successor, begin = node.begin_replace()
        if not c.wait(lambda: "replace failed=" in node.said(begin), 20):
            return "it is let be: " + act
        if successor.poll() is None or node.process.poll() is not None:
            return "the wrong one has ended: " + act
    install(c, node, None)
    return check(c) or ("" if node.replace() else "then it is not replaced")


@test("a predecessor that is stopped while it hands over does not end its successor", nodes=2,
      slow=True)
def stopped_predecessor(c):
    """For longer than a successor may take."""
    node = c.nodes[0]
    install(c, node, "say(READY)\nassert hear() == GIVE\nos.kill(os.getppid(), signal.SIGSTOP)\n"
            "say(TAKEN)\ntime.sleep(12)\nos.kill(os.getppid(), signal.SIGCONT)\n"
            "assert hear() == STANDS\nprint('it was told', flush=True)")
    load(c, nr=600, spread_ms=15000)
    _, begin = node.begin_replace()
    if not c.wait(lambda: node.process.poll() is not None, 40):
        return "it does not end"
    wrong = "" if "it was told" in node.said(begin) else "the successor was ended"
    # What was to take over was none. Its connections are those of the node for the other one.
    c.nodes.remove(node)
    return wrong or check(c)


def open_files(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as f:
        return f.read().split()


@test("a process that came after many others has no more files open than the second", nodes=1)
def leaks(c):
    node = c.nodes[0]
    nr = []
    for _ in range(10):
        if not node.replace() or not c.wait(node.is_ready):
            return "it is not replaced"
        c.wait(lambda: "stopped" in node.said())
        nr.append(open_files(node.process.pid))
    if max(nr[1:]) > nr[0] + 2:    # connections of this test
        return "there are %s" % nr
    if children(node.process.pid):
        return "it has children"
    return check(c)


@test("a successor may have any other configuration", nodes=1)
def configurations(c):
    node = c.nodes[0]
    reconfigure(node, drain_ms=1000)
    load(c, nr=3000, spread_ms=20000)
    for options in ({"poll_ms": 100}, {"poll_ms": 60000}, {"max_in_memory": 100},
                    {"max_in_memory": 50, "poll_ms": 1000}, {"max_in_memory": 16000000},
                    {"url": "http://example.org", "drain_ms": 0, "keep_days": 1}, {}):
        node.configure(**options)
        if not node.replace():
            return "it is not replaced after %s" % options
        if "url" in options and not c.wait(lambda: c.sql("select url from twheel.node")
                                           == "http://example.org", 10):
            return "the node has not the new address"
        time.sleep(0.5)
    # A process with drain_ms=0 ends with calls under way.
    return check(c, twice_allowed=True)


@test("a successor that is to listen where somebody else does ends, and all goes on", nodes=2)
def other_port(c):
    a, b = c.nodes
    reconfigure(a, listen="127.0.0.1:%d" % a.port)
    load(c, nr=300, spread_ms=5000)
    a.configure(listen="127.0.0.1:%d" % b.port)
    _, begin = a.begin_replace()
    if not c.wait(lambda: "replace failed=" in a.said(begin), 30):
        return "nothing is told of it"
    a.configure(listen="127.0.0.1:%d" % free_port())
    if not a.replace():
        return "then it is not replaced"
    a.port = int(re.findall(r"http-listens address=127.0.0.1 port=(\d+)", a.said())[-1])
    return check(c) or ("" if a.is_ready() else "it does not listen")


def is_refused(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


@test("where a successor does not listen any more nobody does", nodes=1)
def listens_elsewhere(c):
    node = c.nodes[0]
    first, second = node.port, free_port()
    reconfigure(node, listen="127.0.0.1:%d" % first)
    node.configure(listen="127.0.0.1:%d" % second)
    if not node.replace():
        return "it is not replaced"
    node.port = second
    if not c.wait(lambda: is_refused(first), 5):
        return "somebody listens there still"
    node.configure(listen="127.0.0.1:%d" % first)
    return "" if node.replace() else "it cannot listen there again"


@test("a successor that has not taken over yet is not replaced", nodes=1)
def not_yet(c):
    node = c.nodes[0]
    before = owners(c)
    c.postgres("stop")
    successor, begin = node.begin_replace()
    time.sleep(1)
    successor.send_signal(signal.SIGHUP)
    time.sleep(1)
    c.postgres("start")
    if not c.wait(lambda: "take-over node=" in node.said(begin), 40):
        return "it does not take over"
    node.process = successor
    if owners(c) != before:
        return "shards have changed hands"
    return "" if node.said(begin).count("replace pid=") == 1 else "there are more processes"


@test("a successor that looks more rarely misses nothing until its first look", nodes=1)
def looks_more_rarely(c):
    node = c.nodes[0]
    reconfigure(node, poll_ms=1000)
    c.submit(node, "queue", 100, 8000, 2000)
    time.sleep(1)
    node.configure(poll_ms=60000)
    if not node.replace():
        return "it is not replaced"
    return check(c, seconds=30)


@test("a look that is under way when a process is replaced is begun anew", nodes=1,
      options=("poll_ms=60000",))
def look_under_way(c):
    node = c.nodes[0]
    c.wait(lambda: node.metric("looks_total"))
    at = time.time() + 3
    job = c.sql("select twheel.submit('queue', to_timestamp(%f), announce => false)" % at)
    c.submitted[int(job)] = "queue", at
    application = Psql(c.conninfo())
    application.sql("begin; lock twheel.job in access exclusive mode")
    c.sql("select pg_notify('twheel_job', 'look')")
    time.sleep(0.5)
    replaced = node.replace()
    application.sql("commit")
    application.close()
    if not replaced:
        return "it is not replaced"
    return check(c, seconds=30)


@test("what did not fit into memory comes as soon as there is room, whoever has it", nodes=1,
      options=("max_in_memory=100", "poll_ms=60000"))
def full(c):
    c.submit(c.nodes[0], "queue", 300, 5000, 1000)
    if not c.nodes[0].replace():
        return "it is not replaced"
    return check(c, seconds=30)


@test("there is room for more in a successor, which is looked for at once", nodes=1,
      options=("poll_ms=60000",))
def less_full(c):
    node = c.nodes[0]
    reconfigure(node, max_in_memory=100)
    c.submit(node, "queue", 1000, 5000, 1000)
    node.configure(max_in_memory=10000)
    if not node.replace():
        return "it is not replaced"
    return check(c, seconds=30)


@test("what was set aside, as too much waits for a service, is not forgotten", nodes=1,
      concurrency=1, timeout_ms=60000)
def set_aside(c):
    c.sql("select count(twheel.submit('http', announce => false)) from generate_series(1, 15000)")
    if not c.wait(lambda: c.nodes[0].metric("looked_jobs_total") >= 15000):
        return "it does not look"
    time.sleep(1)
    if not c.nodes[0].replace():
        return "it is not replaced"
    c.sql("update twheel.service set concurrency = 1000, "
          "version = nextval('twheel.service_version')")
    done = c.wait(lambda: c.sql("select count(*) from twheel.job") == "0", 120)
    return "" if done else "%s wait" % c.sql("select count(*) from twheel.job")


@test("a process that takes over has the part of a service's limits that its node had", nodes=2,
      concurrency=20, timeout_ms=60000)
def part_of_limits(c):
    lock, now, most = threading.Lock(), [0], [0]

    def act(headers, body):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(2)
        with lock:
            now[0] -= 1
        return 200

    c.consumer.act = act
    c.submit(c.nodes[0], "http", 60, 0)
    c.wait(lambda: now[0] == 10)
    if not c.nodes[0].replace():
        return "it is not replaced"
    wrong = check(c)
    # Those of the process before do not count.
    return wrong or ("%d calls at a time" % most[0] if most[0] > 20 else "")


@test("what comes of a call is told to whoever has its job, several processes later", nodes=1,
      backoff_ms=100, concurrency=100, options=("poll_ms=60000",))
def told_later(c):
    def act(headers, body):
        if headers["Twheel-Attempt"] == "1":
            time.sleep(4)
            return 500
        return 200

    node = c.nodes[0]
    c.consumer.act = act
    c.submit(node, "http", 20, 0)
    c.wait(lambda: len(c.consumer.journal) == 20)
    for _ in range(3):
        successor, begin = node.begin_replace()
        if not c.wait(lambda: "take-over node=" in node.said(begin), 40):
            return "it is not replaced"
        node.process = successor
    return check(c, twice_allowed=True, seconds=30)


def replace_apart(node):
    """The process that is to take over, whose connections have "geqo" in their startup message."""
    node.configure(**dict(node.file, database=node.conninfo + " options=-cgeqo=on"))
    return node.begin_replace()


def is_old(what):
    """Of connections for that of the process before."""
    return lambda startup: b" " + what in startup and b"geqo" not in startup


@test("a result that is late to be recorded is recorded by the process that called", nodes=1,
      timeout_ms=1000, backoff_ms=1, backoff_max_ms=1)
def late_result(c):
    node = c.nodes[0]
    reconfigure(node, database=node.conninfo, drain_ms=30000)
    c.submit(node, "http", 1, 500)
    c.wait(lambda: len(c.consumer.journal) == 1, 30)
    c.consumer.act = lambda headers, body: time.sleep(0.9) or 200
    c.submit(node, "http", 10, 2000)
    c.wait(lambda: len(c.consumer.journal) == 11, 30)
    node.proxy.stall(down=False, only=is_old(b"finish"))
    successor, begin = replace_apart(node)
    if not c.wait(lambda: "take-over node=" in node.said(begin), 40):
        return "it is not replaced"
    node.process = successor
    time.sleep(8)
    node.proxy.go_on()
    return check(c)


@test("what is planned while a process is replaced is not late in the next one", nodes=1,
      options=("poll_ms=60000",))
def planned(c):
    node = c.nodes[0]
    c.wait(lambda: node.metric("looks_total"))
    # Has its statement prepared.
    c.sql("select twheel.schedule('once', 'queue', every => '1 second', count => 1)")
    c.wait(lambda: c.sql("select count(*) from app.got") == "1")
    application = Psql(c.conninfo())
    application.sql("begin; lock twheel.job in share mode")
    c.sql("select twheel.schedule('s', 'queue', every => '1 second', "
          "end_at => now() + interval '9 seconds')")
    successor, begin = node.begin_replace()
    taken = c.wait(lambda: "take-over node=" in node.said(begin), 40)
    application.sql("commit")
    application.close()
    if not taken:
        return "it is not replaced"
    node.process = successor
    time.sleep(12)
    nr, late = c.rows("select count(*), count(*) filter (where at > due + interval '3 seconds') "
                      "from app.got")[0]
    return "%s came, %s late" % (nr, late) if int(nr) < 10 or late != "0" else ""


@test("a process that may not write, nor start another one, goes on", nodes=1)
def may_not(c):
    node = c.nodes[0]
    load(c, nr=3000, spread_ms=8000)
    for limit, to in (resource.RLIMIT_FSIZE, 65536), (resource.RLIMIT_NOFILE, 5):
        before = resource.prlimit(node.process.pid, limit)
        resource.prlimit(node.process.pid, limit, (to, before[1]))
        begin = os.path.getsize(node.log)
        node.signal(signal.SIGHUP)
        if not c.wait(lambda: "replace failed=" in node.said(begin), 30):
            return "nothing is told of it"
        resource.prlimit(node.process.pid, limit, before)
        if node.process.poll() is not None:
            return "it has ended"
    return check(c) or ("" if node.replace() else "then it is not replaced")


@test("systemd is told that all goes on if there is no program to start any more", nodes=1)
def no_program(c):
    node = c.nodes[0]
    path = os.path.join(c.folder, "notify")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    listener.settimeout(20)
    node.env = dict(node.env, NOTIFY_SOCKET=path)
    install(c, node, "time.sleep(60)")
    listener.recv(256)
    node.begin_replace()
    os.unlink(node.twheeld)
    begin = os.path.getsize(node.log)
    node.signal(signal.SIGHUP)
    if not c.wait(lambda: "replace failed=" in node.said(begin), 20):
        return "nothing is told of it"
    told = [listener.recv(256)]
    listener.settimeout(2)
    with contextlib.suppress(TimeoutError):
        told.append(listener.recv(256))
    return "" if told[-1] == b"READY=1" else "it was told %s" % told


@test("a node has the address of its new configuration, though its connection is cut", nodes=1)
def renamed(c):
    node = c.nodes[0]
    reconfigure(node, url="http://a.example.org")
    node.configure(url="http://b.example.org")
    application = Psql(c.conninfo())
    application.sql("begin; select from twheel.node for update")
    successor, begin = node.begin_replace()
    taken = c.wait(lambda: "take-over node=" in node.said(begin), 40)
    node.proxy.cut()
    time.sleep(0.1)
    c.sql("select pg_terminate_backend(pid) from pg_stat_activity "
          "where application_name like 'twheeld % lease'")
    application.sql("commit")
    application.close()
    if not taken:
        return "it is not replaced"
    node.process = successor
    if not c.wait(lambda: c.sql("select url from twheel.node") == "http://b.example.org", 10):
        return "it has that of before: " + c.sql("select url from twheel.node")
    return check(c)


@test("processes that are replaced while other things happen to them lose nothing", slow=True,
      backoff_max_ms=5000)
def storm(c):
    """TWHEEL_SECONDS says for how long."""
    end = time.monotonic() + float(os.environ.get("TWHEEL_SECONDS", "60"))
    c.consumer.act = lambda headers, body: time.sleep(random.random()) or random.choice(
        (200, 200, 200, 500))
    did = {}

    def one(node):
        while time.monotonic() < end:
            time.sleep(random.random())
            what = random.choice(("nothing", "nothing", "kill old", "kill new", "stop old",
                                  "stop new", "again", "stall", "cut", "end"))
            successor, begin = node.begin_replace()
            time.sleep(random.random() * random.choice((0.01, 0.1, 0.3)))
            old = node.process
            if what == "kill old":
                old.kill()
            elif what == "kill new":
                successor.kill()
            elif what in ("stop old", "stop new"):
                who = old if what == "stop old" else successor
                who.send_signal(signal.SIGSTOP)
                time.sleep(random.random() * 6)
                who.send_signal(signal.SIGCONT)
            elif what == "again":
                old.send_signal(signal.SIGHUP)
            elif what == "stall":
                node.proxy.stall(up=random.random() < 0.7, down=random.random() < 0.7)
                time.sleep(random.random() * 6)
                node.proxy.go_on()
            elif what == "cut":
                node.proxy.cut()
            elif what == "end":
                old.send_signal(signal.SIGTERM)
            # Whichever goes on by itself is the node.
            c.wait(lambda: "replace failed" in node.said(begin) or old.poll() is not None, 60)
            pids = [int(pid) for pid in re.findall(r"replace pid=(\d+)", node.said())]
            alive = [p for p in [old] + [Successor(pid) for pid in pids] if p.poll() is None]
            if alive:
                node.process = alive[-1]
            else:
                node.start()
            # One that was killed may take a moment to end.
            c.wait(lambda: node.is_ready() or node.process.poll() is not None, 60)
            if node.process.poll() is not None:
                node.start()
                c.wait(node.is_ready, 60)
            did[what] = did.get(what, 0) + 1

    threads = [threading.Thread(target=one, args=(node,)) for node in c.nodes]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        node = random.choice(c.nodes)
        c.submit(node, random.choice(("queue", "http")), 20, random.randrange(5000), 3000)
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    print("# " + ", ".join("%s: %d" % item for item in sorted(did.items())))
    return check(c, twice_allowed=True)
