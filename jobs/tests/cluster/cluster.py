# SPDX-License-Identifier: GPL-2.0
"""A cluster to be broken: a PostgreSQL, nodes that reach it through a proxy each, consumers, and a
ledger that compares what was promised with what happened."""

import contextlib
import http.client
import http.server
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from ports import free_port    # noqa: E402
TWHEELD = os.environ.get("TWHEELD", os.path.join(HERE, "../../../build/jobs/twheeld"))
POSTGRES = os.path.join(HERE, "..", "postgres")
BACKEND = os.environ.get("BACKEND", "local")    # of libtwheel
PATIENCE = float(os.environ.get("PATIENCE", "1"))    # what is waited for has so much more time

SQL = """
create schema app;
create table app.seen (tag text, due timestamptz, payload bytea);
create table app.got (job bigint, due timestamptz, at timestamptz default clock_timestamp());
create function app.consume(name text, most integer) returns integer language plpgsql as $$
declare
	r record;
	nr integer := 0;
begin
	for r in select * from twheel.take(name, most) loop
		insert into app.got (job, due) values (r.job, r.due);
		if r.tag is not null then
			insert into app.seen values (r.tag, r.due, r.payload);
		end if;
		if not twheel.finish(r.seq, r.taken) then
			raise exception 'somebody else has taken it';
		end if;
		nr := nr + 1;
	end loop;
	return nr;
end $$;
"""


def boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Psql:
    """A session, as to start one costs more than most statements."""

    def __init__(self, conninfo):
        self.process = subprocess.Popen(
            ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def sql(self, text):
        """What it printed. The session is over if that is an error."""
        try:
            self.process.stdin.write(text + "\n;\n\\echo \x01\n")
            self.process.stdin.flush()
        except OSError:
            pass
        lines = []
        for line in self.process.stdout:
            if line == "\x01\n":
                return "".join(lines).strip()
            lines.append(line)
        raise RuntimeError(self.process.stderr.read() or "psql ended")

    def close(self):
        self.process.kill()
        self.process.communicate()


class Proxy:
    """Between a node and PostgreSQL, of which to(startup message) tells the socket. "up" is
    what the node sends, "down" what it gets; what is stalled waits in buffers. only(startup
    message) chooses connections."""

    def __init__(self, path, to):
        self.path, self.to = path, to
        self.stalled = {"up": False, "down": False}
        self.only = lambda startup: True
        self.delay = 0.0
        self.pairs = set()
        self.closed = False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self.to(near.recv(65536, socket.MSG_PEEK)))
            except OSError:
                near.close()
                far.close()
                continue
            pair = {"near": near, "far": far, "startup": b""}
            self.pairs.add(near)
            for way, a, b in (("up", near, far), ("down", far, near)):
                threading.Thread(target=self.pump, args=(pair, way, a, b), daemon=True).start()

    def pump(self, pair, way, a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                if way == "up" and not pair["startup"]:
                    pair["startup"] = data
                while self.stalled[way] and self.only(pair["startup"]) and not self.closed:
                    time.sleep(0.005)
                if self.delay:
                    time.sleep(self.delay)
                b.sendall(data)
        except OSError:
            pass
        for end in (a, b):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.pairs.discard(pair["near"])

    def stall(self, up=True, down=True, only=lambda startup: True):
        self.only = only
        self.stalled = {"up": up, "down": down}

    def go_on(self):
        self.stalled = {"up": False, "down": False}

    def cut(self):
        for near in list(self.pairs):
            try:
                near.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.closed = True
        self.listener.close()
        self.cut()


def is_reported(log):
    """Whether a sanitizer has ended what wrote that. Others may have taken over from it."""
    return "Sanitizer" in log or "runtime error:" in log


class Successor:
    """A process that was started by another one, as subprocess.Popen is of our own."""

    def __init__(self, pid):
        self.pid = pid
        try:
            self.fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.fd = None
        self.returncode = None

    def __del__(self):
        if self.fd is not None:
            os.close(self.fd)

    def wait(self, timeout=None):
        if self.fd is not None and not select.select([self.fd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("twheeld", timeout)
        self.returncode = 0

    def poll(self):
        try:
            self.wait(0)
        except subprocess.TimeoutExpired:
            pass
        return self.returncode

    def send_signal(self, number):
        if self.fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Node:
    """"env" is what its environment has besides; without "conninfo" it has a proxy."""

    def __init__(self, cluster, name, options=(), env=(), conninfo=None, twheeld=TWHEELD):
        self.cluster, self.name, self.options = cluster, name, options
        self.env, self.twheeld = dict(env), twheeld
        self.file = {}    # see configure()
        folder = os.path.join(cluster.folder, name)
        os.mkdir(folder)
        self.proxy = Proxy(os.path.join(folder, ".s.PGSQL.5432"),
                           lambda startup: os.path.join(self.server(startup), ".s.PGSQL.5432"))
        self.server = lambda startup: cluster.pg
        self.conninfo = conninfo or "host=%s port=5432 user=postgres dbname=postgres" % folder
        self.port = free_port()
        self.log = os.path.join(cluster.folder, name + ".log")
        self.process = None

    def start(self):
        options = ["database=" + self.conninfo, "name=" + self.name, "backend=" + BACKEND,
                   "listen=127.0.0.1:%d" % self.port, *self.options]
        args = [self.twheeld] + [arg for o in options if o.split("=")[0] not in self.file
                                 for arg in ("-o", o)]
        if self.file:
            args += ["-c", self.log + ".conf"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(args, stdout=log, stderr=log,
                                            env=dict(os.environ, **self.env))
        return self

    def configure(self, **options):
        """Has these in a file from its next start on, and not in its arguments."""
        self.file = options
        with open(self.log + ".conf", "w", encoding="utf-8") as f:
            f.writelines("%s = %s\n" % option for option in self.file.items())

    def backend(self, what):
        """Process of its connection for that: lease, fire, look, finish, service, submit."""
        return int(self.cluster.sql(
            "select pid from pg_stat_activity a, twheel.node n where n.name = '%s' and "
            "a.application_name = 'twheeld ' || n.node || ' %s'" % (self.name, what)))

    def uuid(self):
        return self.cluster.sql("select node from twheel.node where name = '%s' "
                                "order by started desc limit 1" % self.name)

    def signal(self, number):
        self.process.send_signal(number)

    def said(self, begin=0):
        """What it has logged from there on."""
        with open(self.log, encoding="utf-8") as f:
            f.seek(begin)
            return f.read()

    def begin_replace(self):
        """The process that is to take over, and from where on the log is about that."""
        begin = os.path.getsize(self.log)
        self.signal(signal.SIGHUP)
        found = None
        while not found:
            if self.process.poll() is not None or "replace failed" in self.said(begin):
                raise RuntimeError("it has not begun")
            time.sleep(0.001)
            found = re.search(r"replace pid=(\d+)", self.said(begin))
        return Successor(int(found.group(1))), begin

    def replace(self):
        """Whether another process has taken over, and this one has ended."""
        successor, begin = self.begin_replace()
        if not self.cluster.wait(lambda: "take-over node=" in self.said(begin), 40):
            return False
        old, self.process = self.process, successor
        return self.cluster.wait(lambda: old.poll() is not None, 30)

    def metric(self, name):
        found = re.search(r"^twheel_%s (\d+)" % name,
                          self.request("GET", "/metrics")[1].decode(), re.M)
        return int(found.group(1)) if found else None

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def is_ready(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            c.request("GET", "/readyz")
            return c.getresponse().status == 200
        except OSError:
            return False

    def submit(self, jobs, timeout=20):
        """(status, answer); status 0 if there was none."""
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
            c.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}),
                      {"Content-Type": "application/json"})
            r = c.getresponse()
            return r.status, json.loads(r.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None

    def request(self, method, path, body=None):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            c.request(method, path, json.dumps(body) if body else None,
                      {"Content-Type": "application/json"})
            r = c.getresponse()
            return r.status, r.read()
        except (OSError, http.client.HTTPException):
            return 0, b""


class Consumer:
    """By HTTP. act(headers, body) returns a status, or None for no answer."""

    def __init__(self, act=lambda headers, body: 200):
        self.journal = []    # (job, attempt, idem, time, BOOTTIME, status)
        self.act = act
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                entry = [int(self.headers["Twheel-Job"]), int(self.headers["Twheel-Attempt"]),
                         self.headers["Idempotency-Key"], time.time(), boottime(), None]
                outer.journal.append(entry)
                status = entry[5] = outer.act(self.headers, body)
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 1024
            daemon_threads = True

            def handle_error(self, *args):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Cluster:
    """"tool" is what a test has to break it by; pg_env and pg_prefix are what PostgreSQL is
    started with, pg where, if not in the folder of all."""

    def __init__(self, nodes=3, options=(), consumers=2, pg_options=(), tool=None, pg=None,
                 pg_env=(), pg_prefix=(), **service):
        self.pg_options, self.tool = pg_options, tool
        self.pg_env, self.pg_prefix = dict(pg_env), list(pg_prefix)
        self.folder = tempfile.mkdtemp()
        self.pg = pg or os.path.join(self.folder, "pg")
        self.consumer = None
        self.own = threading.local()    # its "psql": answers go to whoever asked
        self.others = []        # folders of other servers
        self.books = []
        os.chmod(self.folder, 0o755)
        self.submitted = {}     # id: (service, at in s since 1970, or None)
        self.cancelled = set()
        self.stopping = False
        self.nodes = []
        try:
            self.begin(nodes, options, consumers, service)
        except BaseException:
            self.close()
            raise

    def begin(self, nodes, options, consumers, service):
        self.postgres("start", *self.pg_options)
        # As its owner; before there are nodes.
        subprocess.run([TWHEELD, "-o", "database=" + self.conninfo(), "--migrate"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.sql(SQL)
        self.consumer = Consumer()
        self.sql("insert into twheel.service (service, kind) values ('queue', 'queue')")
        names = ", ".join(service)
        values = ", ".join("'%s'" % v for v in service.values())
        self.sql("insert into twheel.service (service, kind, target%s) values ('http', 'http', "
                 "'%s'%s)" % (", " + names if names else "", self.consumer.url,
                              ", " + values if values else ""))
        for _ in range(nodes):
            self.add_node(options=options)
        for _ in range(consumers):
            threading.Thread(target=self.consume, daemon=True).start()

    def add_node(self, **more):
        name = next(x for x in "abcdefghijklmnopqrstuvwxyz" if not os.path.exists(
            os.path.join(self.folder, x)))
        self.nodes.append(Node(self, name, **more).start())
        return self.nodes[-1]

    def postgres(self, what, *options, pg=None):
        self.hang_up()
        subprocess.run(self.pg_prefix + [POSTGRES, what, pg or self.pg, *options], check=True,
                       env=dict(os.environ, **self.pg_env), stdout=subprocess.DEVNULL,
                       stdin=subprocess.DEVNULL)

    def conninfo(self):
        return "host=%s port=5432 user=postgres dbname=postgres" % self.pg

    def sql(self, text):
        if not getattr(self.own, "psql", None):
            self.own.psql = Psql(self.conninfo())
        try:
            return self.own.psql.sql(text)
        except RuntimeError:
            self.hang_up()
            raise

    def hang_up(self):
        """The next statement of this thread has a session of its own."""
        if getattr(self.own, "psql", None):
            self.own.psql.close()
            self.own.psql = None

    def rows(self, text):
        return [line.split("|") for line in self.sql(text).splitlines()]

    def consume(self, service="queue"):
        """Takes from the queue until the end, whatever becomes of PostgreSQL."""
        while not self.stopping:
            psql = subprocess.Popen(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d",
                                     self.conninfo()], text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            try:
                while not self.stopping:
                    psql.stdin.write("select app.consume('%s', 500);\n" % service)
                    psql.stdin.flush()
                    answer = psql.stdout.readline().strip()
                    if psql.poll() is not None or not answer:
                        break
                    if answer == "0":
                        time.sleep(0.05)
            except OSError:
                pass
            psql.kill()
            psql.wait()
            time.sleep(0.1)

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds * PATIENCE
        while time.monotonic() < end:
            try:
                if condition():
                    return True
            except RuntimeError:
                pass    # PostgreSQL is being started
            time.sleep(0.1)
        return False

    def ready(self):
        """All nodes are, and each shard is owned by one of them."""
        return not self.nodes or self.wait(
            lambda: all(n.is_ready() for n in self.nodes) and self.sql(
            "select count(*) from twheel.shard s join twheel.node n on n.node = s.owner") == "64"
            and self.sql("select count(distinct owner) from twheel.shard") == str(len(self.nodes)))

    def submit(self, node, service, nr, delay_ms, spread_ms=0, page=1000, begin=0, **more):
        """Those that were answered with 201 are owed. Returns how many. "begin" is an absolute
        time for all pages."""
        done = 0
        for first in range(0, nr, page):
            at = begin or time.time() + delay_ms / 1000.0
            jobs, ats = [], []
            for i in range(first, min(first + page, nr)):
                when = at + spread_ms / 1000.0 * i / nr
                ats.append(when)
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
                jobs.append(dict(more, service=service,
                                 at="%s.%06dZ" % (stamp, int(when % 1 * 1e6))))
            status, answer = node.submit(jobs)
            if status not in (200, 201):
                continue
            for job, when in zip(answer["jobs"], ats):
                self.submitted[int(job["id"])] = service, when
                done += 1
        return done

    def settled(self, seconds=60):
        """Nothing is owed any more."""
        return self.wait(lambda: self.sql(
            "select (select count(*) from twheel.job) + (select count(*) from twheel.queue)"
            ) == "0", seconds)

    def ledger(self, early=0.0):
        """A dict of lists of jobs for all that may go wrong, and "late" in ms."""
        got = {}
        for job, due, at in self.rows("select job, extract(epoch from due), "
                                      "extract(epoch from at) from app.got"):
            got.setdefault(int(job), []).append((float(due), float(at)))
        calls = {}
        for job, _, _, at, _, status in list(self.consumer.journal):
            calls.setdefault(job, []).append((at, status))
        backlog = {}
        for job, state in self.rows("select job, state from twheel.backlog"):
            backlog.setdefault(int(job), []).append(int(state))
        owed = {int(job) for job, in self.rows("select id from twheel.job union all "
                                               "select job from twheel.queue")}
        book = {name: [] for name in ("missed", "early", "doubled", "called_twice", "ended_twice",
                                      "after_cancel", "owed")}
        late = []
        for job, (service, at) in self.submitted.items():
            events = [x[1] for x in got.get(job, ())] if service == "queue" else [
                x[0] for x in calls.get(job, ())]
            good = [x for x in calls.get(job, ()) if x[1] is not None and 200 <= x[1] < 300]
            if job in self.cancelled:
                book["after_cancel"] += [job] * bool(events)
            elif job in owed:
                book["owed"].append(job)
            elif not events:
                book["missed"].append(job)
            if events and min(events) < at - early - 0.000002:
                book["early"].append(job)
            if service == "queue" and len(events) > 1:
                book["doubled"].append(job)
            if service == "http" and len(good) > 1:
                book["called_twice"].append(job)
            if len(backlog.get(job, ())) > 1:
                book["ended_twice"].append(job)
            if events:
                late.append((min(events) - at) * 1000)
        for job in set(got) - set(self.submitted):
            if len(got[job]) > 1:
                book["doubled"].append(job)     # not answered, but owed like any other
        book["late"] = sorted(late)
        book["why_twice"] = self.why_twice(book["called_twice"])
        self.books.append(book)
        return book

    def why_twice(self, jobs):
        """How often what was recorded of an attempt that another one came after."""
        return self.rows("select count(*), coalesce(message, 'status ' || status) "
                         "from twheel.execlog where job = any('{%s}') and outcome = 1 "
                         "group by 2 order by 2" % ",".join(map(str, jobs))) if jobs else []

    def close(self):
        self.stopping = True
        for n in self.nodes:
            if n.process.poll() is None:
                n.process.send_signal(signal.SIGCONT)
                n.kill()
            n.proxy.close()
        if self.consumer:
            self.consumer.server.shutdown()
        for pg in [self.pg] + self.others:
            if os.path.exists(pg):
                self.postgres("kill", pg=pg)
        shutil.rmtree(self.folder, ignore_errors=True)


def percentiles(values):
    if not values:
        return "none"
    at = {p: values[min(len(values) - 1, int(len(values) * p / 100.0))] for p in (50, 90, 99)}
    return "p50 %.1f, p90 %.1f, p99 %.1f, most %.1f ms" % (at[50], at[90], at[99], values[-1])
