# SPDX-License-Identifier: GPL-2.0
"""Clocks that are wrong: of nodes, where those of the wall matter nowhere; and of PostgreSQL, which
is what jobs go by."""

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import time

from cluster import HERE, boottime
from suite import Skip, check, load, test


class Clock:
    """What a process sees that has env; see clock.c."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "clocks")
        self.by = 0.0
        library = os.path.join(folder, "clock.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library,
                        os.path.join(HERE, "clock.c")], check=True)
        with open(self.path, "wb") as f:
            f.write(struct.pack("qqd", 0, int(boottime() * 1e9), 1.0))
        self.env = {"LD_PRELOAD": library, "CLOCKS": self.path}

    def write(self, offset, data):
        with open(self.path, "r+b") as f:
            f.seek(offset)
            f.write(data)

    def set(self, by):
        """The wall clock is ahead by so many s."""
        self.by = by
        self.write(0, struct.pack("q", int(by * 1e9)))

    def speed(self, rate):
        """Of all other clocks; before there are processes."""
        self.write(16, struct.pack("d", rate))

    def now(self):
        return time.time() + self.by


@contextlib.contextmanager
def clock_of(what):
    """The cluster has it as its tool."""
    if os.environ.get("LD_PRELOAD") or "SANITIZE" in os.environ:
        raise Skip("something else is preloaded")
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    try:
        clock = Clock(folder)
        os.chmod(clock.path, 0o644)
        yield {"tool": clock, "pg_env": clock.env if what == "database" else {}}
    finally:
        shutil.rmtree(folder)


def of_node():
    return clock_of("node")


def of_database():
    return clock_of("database")


def node_with_clock(c, by):
    c.tool.set(by)
    c.add_node(env=c.tool.env)
    return c.ready()


@test("a node whose wall clock is an hour ahead, and set back two, does no harm", nodes=2,
      around=of_node)
def node_clock(c):
    if not node_with_clock(c, 3600):
        return "it does not get ready"
    load(c, spread_ms=10000)
    time.sleep(5)
    c.tool.set(-3600)
    time.sleep(3)
    c.tool.set(3600)
    return check(c)


def node_speed(c, rate):
    c.tool.speed(rate)
    if not node_with_clock(c, 0):
        return "it does not get ready"
    load(c, spread_ms=10000)
    time.sleep(4)
    c.nodes[0].kill()
    wrong = check(c, twice_allowed=True, early=0.003)
    return wrong


@test("a node all of whose clocks are 1.1 times as fast does no harm", nodes=2, around=of_node)
def fast_node(c):
    """It may be early by that much of the 30 ms between a mark and its call."""
    return node_speed(c, 1.1)


@test("a node all of whose clocks are 1.1 times as slow does no harm", nodes=2, slow=True,
      around=of_node)
def slow_node(c):
    return node_speed(c, 1 / 1.1)


def submit_at(c, service, at, nr, announce):
    """In an application's own transaction. The time is the database's."""
    rows = c.rows("select id, extract(epoch from at) from ("
                  "select to_timestamp(%f) + i * interval '10 ms' as at, twheel.submit('%s', "
                  "to_timestamp(%f) + i * interval '10 ms', announce => %s) as id "
                  "from generate_series(1, %d) i) t" % (at, service, at, announce, nr))
    for job, when in rows:
        c.submitted[int(job)] = service, float(when)
    return {int(job) for job, _ in rows}


def begun(c):
    return {job for job, *_ in list(c.consumer.journal)} | {
        int(job) for job, in c.rows("select job from app.got")}


def ends(c, twice_allowed=False):
    """That each is done once; when was looked at before."""
    wrong = check(c, twice_allowed=twice_allowed, early=1e9)
    print("# (by clocks that were set meanwhile)")
    return wrong


@test("what waits while the database's clock is an hour back is done once, and not before its time",
      around=of_database)
def database_back(c):
    start = time.time()
    for service in "queue", "http":
        for announce in "true", "false":
            submit_at(c, service, start + 6, 500, announce)
    time.sleep(max(0, start + 8.5 - time.time()))
    c.tool.set(-3600)
    back = time.time()
    time.sleep(2)
    # As nobody is told of them only looks find them.
    news = submit_at(c, "queue", c.tool.now() + 1, 50, "false")
    news |= submit_at(c, "http", c.tool.now() + 1, 50, "true")
    if not c.wait(lambda: news <= begun(c), 60):
        return "%d of what came meanwhile are missed" % len(news - begun(c))
    time.sleep(max(0, start + 15 - time.time()))
    early = [job for job in begun(c) - news if c.submitted[job][1] > back + 0.02]
    if early:
        return "early: %d of %d" % (len(early), len(c.submitted))
    c.tool.set(0)
    return ends(c)


@test("what is due as the database's clock is set an hour ahead is done once, and the rest waits",
      around=of_database)
def database_ahead(c):
    calls = []

    def act(_headers, _body):
        calls.append(boottime())
        time.sleep(4)
        return 200
    c.consumer.act = act
    start = time.time()
    running = submit_at(c, "http", start + 1, 20, "true")
    soon = set()
    for service in "queue", "http":
        soon |= submit_at(c, service, start + 7, 50, "true")
        soon |= submit_at(c, service, start + 1800, 50, "false")
    late = submit_at(c, "queue", start + 7200, 50, "true")
    if not c.wait(lambda: len(calls) >= len(running), 30):
        return "calls do not begin"
    c.tool.set(3600)
    if not c.wait(lambda: soon | running <= begun(c), 60):
        return "%d are missed" % len((soon | running) - begun(c))
    if late & begun(c):
        return "early: %d" % len(late & begun(c))
    time.sleep(2)
    c.tool.set(0)
    time.sleep(3)
    if late & begun(c):
        return "early: %d" % len(late & begun(c))
    c.tool.set(7300)
    return ends(c)


@test("a takeover while the database's clock is an hour back loses nothing", slow=True,
      around=of_database)
def database_back_takeover(c):
    start = time.time()
    submit_at(c, "queue", start + 4, 500, "true")
    submit_at(c, "http", start + 4, 300, "true")
    time.sleep(max(0, start + 5 - time.time()))
    c.nodes[0].kill()
    c.tool.set(-3600)
    time.sleep(8)
    c.tool.set(0)
    return ends(c, twice_allowed=True)


@test("a call whose mark is under way as the database's clock is set an hour back is made", nodes=1,
      around=of_database)
def database_back_in_mark(c):
    """After the statement saw that the job is due, and before it tells the time to the node."""
    c.sql("""create table app.hold (); insert into app.hold default values;
create function app.hold() returns trigger language plpgsql as $$
begin
	while exists (select from app.hold) loop	-- to sleep is to go by the clock
	end loop;
	return new;
end $$;
create trigger hold before update on twheel.job for each row when (new.state = 1 and old.state = 0)
	execute function app.hold();""")
    c.submit(c.nodes[0], "http", 1, 500)
    if not c.wait(lambda: c.sql("select count(*) from pg_stat_activity where state = 'active' and "
                                "application_name like 'twheeld % fire'") == "1"):
        return "it is not marked"
    time.sleep(0.5)
    c.tool.set(-3600)
    c.sql("delete from app.hold")
    time.sleep(1)
    c.tool.set(0)
    return "" if c.wait(lambda: c.consumer.journal) else "it is not"
