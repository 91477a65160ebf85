# SPDX-License-Identifier: GPL-2.0
"""What is done about instants that were missed, that overlap, and that are for each consumer."""

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time

from clocks import of_database
from cluster import Psql
from instants import are_done, fill
from ledger import (CLOCK, SEC, call, clock, compare, differences, ends, is_over, put, put_all,
                    seconds, stamp)
from suite import test

# By name: what says it, what that means if a cluster was down for longer than 3 s.
POLICIES = {
    "ignore": (dict(cron="* * * * * ?", misfire="ignore"), "each"),
    "now": (dict(cron="* * * * * ?", misfire="fire_now"), "last"),
    "nothing": (dict(cron="* * * * * ?", misfire="do_nothing"), "none"),
    "smart": (dict(cron="* * * * * ?"), "last"),
    "every": (dict(every="1 s"), "none"),
    "counted": (dict(every="1 s", count=100000), "last")}
MISFIRE_S = 3


def missed(instants, book, name, what, before, after):
    """While from "before" to "after" nothing was done. Which instant of those that are late is the
    first that has not misfired is known to a second or so; all else follows from it."""
    got = {at for at, states in book.get(name, {}).items() if states == ["finished"]}
    twice = [at for at, states in book.get(name, {}).items() if len(states) > 1]
    if what == "each":
        gap = []
    else:
        # Of what is between, misfired is what is older than so long when it is looked at.
        gap = [at for at in instants if before - SEC < at < after - MISFIRE_S * SEC]
    absent = sorted(set(instants) - got)
    wrong = []
    if twice or got - set(instants):
        wrong.append("twice %s, too many %s" % (twice, sorted(got - set(instants))))
    if what == "each" and absent:
        wrong.append("lost %s" % absent)
    if what != "each":
        # One stretch, that begins in the second before the end and ends about when it went on.
        here = [at for at in instants if absent and absent[0] <= at <= absent[-1]]
        extra = sorted(set(here) & got)
        low, high = (absent or [0])[0], (absent or [0])[-1]
        if not absent or extra:
            wrong.append("absent %s, but %s" % (absent, extra))
        elif not before - 2 * SEC < low < before + 3 * SEC:
            wrong.append("the first absent is %.1f s after the end" % ((low - before) / SEC))
        elif not -SEC <= high - (gap[-1] - (SEC if what == "last" else 0)) < 15 * SEC:
            wrong.append("the last absent is %.1f s after the one expected"
                         % ((high - gap[-1]) / SEC))
        elif high > after + 12 * SEC:
            wrong.append("it is absent long after it went on")
    return "; ".join("%s: %s" % (name, w) for w in wrong)


def series(lasts, name, end):
    if name in ("every", "counted"):
        return list(range(lasts[name] + 1, end + 1, SEC))
    return seconds(lasts[name], end)


def misfire(c, down, seconds_up=6, seconds_after=14):
    """While down() is under way nothing is fired; it gives when that began and ended."""
    end = clock(c) // SEC * SEC + (seconds_up + 14 + seconds_after) * SEC
    lasts = put_all(c, [call(name, end_at=stamp(end), misfire_ms=MISFIRE_S * 1000, **what)
                        for name, (what, _) in POLICIES.items()])
    time.sleep(seconds_up)
    before, after = down()
    if not c.wait(lambda: is_over(c), 120):
        return "it does not end: %s" % c.rows("select * from twheel.job_schedule")
    book = ends(c)
    return "; ".join(filter(None, (missed(series(lasts, name, end), book, name, what, before, after)
                                   for name, (_, what) in POLICIES.items())))


@test("after a cluster was down each schedule does what it says of instants that were missed")
def misfired(c):
    def down():
        for node in c.nodes:
            node.kill()
        before = clock(c)
        time.sleep(12)
        after = clock(c)
        for node in c.nodes:
            node.start()
        return before, after
    return misfire(c, down)


@test("after a service was paused each schedule does what it says of instants that were missed")
def service_paused(c):
    def down():
        before = int(c.sql("update twheel.service set paused = true; "
                           "select pg_notify('twheel_service', '') \\g /dev/null\n" + CLOCK))
        time.sleep(12)
        after = int(c.sql("update twheel.service set paused = false; "
                          "select pg_notify('twheel_service', '') \\g /dev/null\n" + CLOCK))
        return before, after
    return misfire(c, down)


@test("after a schedule was paused it does what it says of instants that were missed")
def schedule_paused(c):
    def down():
        before = int(c.sql("update twheel.schedule set paused = true;\n" + CLOCK))
        time.sleep(12)
        after = int(c.sql("update twheel.schedule set paused = false;\n" + CLOCK))
        return before, after
    return misfire(c, down)


def owe_much(c):
    """Ten schedules have a day of an instant each ms, which is more than is made up in a test."""
    c.sql("insert into twheel.service (service, kind) values ('bulk', 'queue')")
    put_all(c, [call("bulk%d" % i, "bulk", every="1 ms", misfire="ignore", paused=True)
                for i in range(10)])
    c.sql("update twheel.schedule set last = last - interval '1 day', began = began -"
          " interval '1 day' where schedule ~ '^bulk'")
    c.sql("update twheel.schedule set paused = false where schedule ~ '^bulk'")


@test("what others have to make up delays nothing that is on time, or has little to make up", nodes=1)
def made_up(c):
    end = clock(c) // SEC * SEC + 15 * SEC
    last = put(c, "little", cron="* * * * * ?", end_at=stamp(end), misfire="ignore", paused=True)
    c.sql("update twheel.schedule set last = last - interval '5 min'")
    owe_much(c)
    c.sql("update twheel.schedule set paused = false where schedule = 'little'")
    expected = dict(fill(c, 4, 12, "http"), little=seconds(last - 300 * SEC, end))
    wrong = "" if c.wait(lambda: are_done(c, expected), 60) else "others wait; "
    if c.sql("select count(*) from twheel.schedule where schedule ~ '^bulk'"
             " and last < now() - interval '1 hour'") != "10":
        wrong += "something was made up; "
    c.sql("delete from twheel.schedule where schedule ~ '^bulk'")
    c.wait(lambda: c.sql("select count(*) from twheel.job_schedule where state = 'active'") == "0")
    book = ends(c)
    return wrong + "; ".join(filter(None, (differences(instants, book, name)
                                           for name, instants in expected.items())))


@test("no more is made up than is handed over", nodes=1)
def handed_over(c):
    holder = Psql(c.conninfo())
    holder.sql("begin; lock table twheel.queue in share mode")
    owe_much(c)
    time.sleep(12)
    nr = int(c.sql("select count(*) from twheel.job where due < clock_timestamp()"))
    holder.sql("commit")
    holder.close()
    if not c.wait(lambda: int(c.sql("select count(*) from twheel.queue")) > nr):
        return "it does not go on"
    print("# %d jobs waited" % nr)
    return "" if 0 < nr < 10000 else "%d jobs waited" % nr    # a batch or two, and what is planned


@test("after the database's clock was set an hour ahead none is fired twice, nor one that misfired",
      around=of_database)
def clock_ahead(c):
    start = clock(c)
    lasts = put_all(c, [call(name, misfire_ms=MISFIRE_S * 1000, **what)
                        for name, (what, _) in POLICIES.items() if name != "ignore"])
    time.sleep(6)
    before = clock(c)
    c.tool.set(3600)
    time.sleep(8)
    end = int(c.sql("delete from twheel.schedule;\n" + CLOCK))
    if not c.wait(lambda: c.sql("select count(*) from twheel.job") == "0", 60):
        return "it does not end"
    wrong = []
    for name, at in lasts.items():
        states = ends(c, name=name).get(name, {})
        hour = [t for t in states if before + 6 * SEC < t < before + 3600 * SEC - 5 * SEC
                and states[t] == ["finished"]]
        if any(len(s) > 1 for s in states.values()):
            wrong.append("%s: twice" % name)
        if len(hour) > (POLICIES[name][1] == "last") * 2:
            wrong.append("%s: %d of the hour" % (name, len(hour)))
        for t in series({name: at}, name, end):
            if t < before - 3 * SEC and t not in states:
                wrong.append("%s: lost %d, %.1f s after the start" % (name, t, (t - start) / SEC))
            if before + 3603 * SEC < t < end - SEC and t not in states:
                wrong.append("%s: lost %d after it" % (name, t))
    return "; ".join(wrong)


@test("after the database's clock was set 20 s back none is fired twice, and all come",
      around=of_database)
def clock_back(c):
    expected = fill(c, 6, 20)
    time.sleep(8)
    c.tool.set(-20)
    return compare(c, expected, 120)


def overlapping(c, service, overlap):
    """Jobs that take 2.5 s each, of a schedule each second. Times of each: (instant, from, to)."""
    end = clock(c) // SEC * SEC + 14 * SEC
    last = put(c, "s", service, cron="* * * * * ?", end_at=stamp(end), overlap=overlap,
               misfire="ignore")
    return seconds(last, end)


def check_overlap(c, expected, spans, overlap):
    """spans: (from, to) of each that was done, in order."""
    if not c.wait(lambda: is_over(c), 90):
        return "it does not end"
    spans.sort()
    if any(b[0] < a[1] for a, b in zip(spans, spans[1:])):
        return "some overlap: %s" % spans
    book = ends(c).get("s", {})
    if sorted(book) != expected or any(len(s) > 1 for s in book.values()):
        return "not each has one end: %s instead of %s" % (book, expected)
    done = sum(s == ["finished"] for s in book.values())
    skipped = sum(s == ["skipped"] for s in book.values())
    if overlap == "queue":
        return "" if done == len(expected) == len(spans) else "%d done" % done
    if done + skipped != len(expected) or done != len(spans):
        return "%d done, %d skipped, %d spans" % (done, skipped, len(spans))
    return "" if 3 <= done <= len(expected) // 2 else "%d of %d are done" % (done, len(expected))


def by_http(c, overlap):
    spans = []

    def act(_headers, _body):
        begin = time.time()
        time.sleep(2.5)
        spans.append((begin, time.time()))
        return 200
    c.consumer.act = act
    expected = overlapping(c, "http", overlap)
    return check_overlap(c, expected, spans, overlap)


@test("a schedule that skips does not begin while the call before is not over")
def skip_http(c):
    return by_http(c, "skip")


@test("a schedule that queues begins when the call before is over")
def queue_http(c):
    return by_http(c, "queue")


def slow_consumer(c, spans, stop):
    while not stop.is_set():
        rows = c.rows("select seq, taken from twheel.take('queue', 1)")
        begin = time.time()
        for seq, taken in rows:
            time.sleep(2.5)
            spans.append((begin, time.time()))
            c.sql("select twheel.finish(%s, %s)" % (seq, taken))
        time.sleep(0.05)


def by_queue(c, overlap):
    spans, stop = [], threading.Event()
    threads = [threading.Thread(target=slow_consumer, args=(c, spans, stop)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        return check_overlap(c, overlapping(c, "queue", overlap), spans, overlap)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@test("a schedule that skips has one row in the queue, until a consumer has finished it",
      consumers=0)
def skip_queue(c):
    return by_queue(c, "skip")


@test("a schedule that queues has its rows taken one after the other", consumers=0)
def queue_queue(c):
    return by_queue(c, "queue")


def agent(c, name, stop, got):
    while not stop.is_set():
        for seq, taken, at in c.rows("select seq, taken, (extract(epoch from due) * 1000000)::bigint"
                                     " from twheel.take('queue', 100, agent => '%s')" % name):
            if c.sql("select twheel.finish(%s, %s)" % (seq, taken)) == "t":
                got.append((int(at), name))
        time.sleep(0.2)


@test("a broadcast is for each agent that is there, and for none that is not, though nodes are killed",
      consumers=0)
def broadcast(c):
    """An agent comes, one goes and says so, and then all do: what is fired then is skipped."""
    end = clock(c) // SEC * SEC + 26 * SEC
    got, there, threads = [], {}, {}

    def come(name):
        stop = threading.Event()
        c.sql("select twheel.agent_is_here('queue', '%s')" % name)
        there[name] = [clock(c), None, None]
        thread = threading.Thread(target=agent, args=(c, name, stop, got))
        thread.start()
        threads[name] = stop, thread

    def go(name):
        threads[name][0].set()
        threads[name][1].join()
        there[name][1] = clock(c)
        c.sql("select twheel.agent_is_gone('queue', '%s')" % name)
        there[name][2] = clock(c)

    come("a")
    come("b")
    last = put(c, "s", cron="* * * * * ?", end_at=stamp(end), broadcast=True, misfire="ignore")
    time.sleep(3)
    c.nodes[0].kill()
    time.sleep(2)
    come("c")
    time.sleep(3)
    c.nodes[0].start()
    go("a")
    time.sleep(8)
    go("b")
    go("c")
    if not c.wait(lambda: c.sql("select count(*) from twheel.job") == "0" and
                  c.sql("select state from twheel.job_schedule") == "ended", 90):
        return "it does not end"
    handed = {}
    for at, when, states in c.rows(
            "select (extract(epoch from b.due) * 1000000)::bigint,"
            " (extract(epoch from coalesce(e.at, b.at)) * 1000000)::bigint, b.state"
            " from twheel.job_delay_task_backlog b left join twheel.execlog e"
            " on e.job = b.job and e.outcome = 4 where b.tag = 's'"
            " union all select (extract(epoch from q.due) * 1000000)::bigint,"
            " (extract(epoch from e.at) * 1000000)::bigint, 'queued'"
            " from twheel.queue q join twheel.execlog e on e.job = q.job and e.outcome = 4"):
        handed[int(at)] = int(when), states
    left = {(int(at), name) for at, name in c.rows(
        "select (extract(epoch from due) * 1000000)::bigint, agent from twheel.queue")}
    wrong = []
    if len(set(got)) != len(got):
        wrong.append("some twice")
    for at in seconds(last, end):
        if at not in handed:
            wrong.append("lost %d" % at)
            continue
        when, state = handed[at]
        have = {name for t, name in got if t == at} | {name for t, name in left if t == at}
        for name, (here, going, gone) in there.items():
            if here < when - SEC // 2 and when < going - SEC // 2 and name not in have:
                wrong.append("%s has not %d" % (name, at))
            if (when < here - SEC or when > gone + SEC // 2) and name in have:
                wrong.append("%s has %d" % (name, at))
        if (state == "skipped") != (not have):
            wrong.append("%d: %s, but had by %s" % (at, state, have))
    print("# %d had, %d left, %d skipped" % (len(got), len(left), sum(
        s == "skipped" for _, s in handed.values())))
    return "; ".join(wrong)


@test("an agent that is not heard of for 30 s gets no more, and what it has fails some time",
      consumers=0, nodes=1)
def silent_agent(c):
    c.sql("select twheel.agent_is_here('queue', 'a'), twheel.agent_is_here('queue', 'b')")
    c.sql("update twheel.agent set seen = now() - interval '40 s' where agent = 'a'")
    c.sql("select twheel.schedule('s', 'queue', every => '1 day', count => 1, broadcast => true)")
    c.wait(lambda: c.sql("select count(*) from twheel.queue") != "0", 30)
    if c.sql("select agent from twheel.queue") != "b":
        return c.sql("select agent from twheel.queue")
    c.sql("delete from twheel.agent")
    c.wait(lambda: c.sql("select count(*) from twheel.queue") == "0", 150)
    return "" if ends(c)["s"].popitem()[1] == ["failed"] else "%s" % ends(c)


@contextlib.contextmanager
def zones():
    folder = tempfile.mkdtemp()
    try:
        yield {"tool": folder}
    finally:
        shutil.rmtree(folder)


def set_zone(folder, hours):
    """An own zone, so many hours before UTC."""
    shutil.copy("/usr/share/zoneinfo/Etc/GMT-%d" % hours, os.path.join(folder, "new"))
    os.rename(os.path.join(folder, "new"), os.path.join(folder, "Zone"))


@test("what tzdata changes meanwhile is fired as it is then, and not as it was", nodes=0,
      around=zones)
def tzdata(c):
    """Each minute of the hour that it is, by a zone of hours: one hour is another one's."""
    set_zone(c.tool, 1)
    for _ in range(2):
        c.add_node(env={"TZDIR": c.tool})
    if not c.ready():
        return "the cluster does not get ready"
    now = time.time()
    soon = int(now) + 45            # by the zone of 2 hours, long after the change
    at = time.gmtime(soon)
    old = time.gmtime(int(now) + 8)     # by the zone of 1 hour, before the change
    lasts = put_all(c, [
        call("later", tz="Zone", misfire="ignore",
             cron="%d %d %d * * ?" % (at.tm_sec, at.tm_min, (at.tm_hour + 2) % 24)),
        call("before", tz="Zone", misfire="ignore",
             cron="%d %d %d * * ?" % (old.tm_sec, old.tm_min, (old.tm_hour + 1) % 24)),
        call("gone", tz="Zone", misfire="ignore",
             cron="%d %d %d * * ?" % (at.tm_sec, at.tm_min, (at.tm_hour + 1) % 24)),
        call("each", tz="Zone", misfire="ignore", cron="* * * * * ?",
             end_at=stamp((int(now) + 50) * SEC))])
    time.sleep(10)
    set_zone(c.tool, 2)
    time.sleep(max(0, soon + 8 - time.time()))
    c.sql("delete from twheel.schedule where schedule <> 'each'")
    if not c.wait(lambda: is_over(c), 60):
        return "it does not end"
    book = ends(c)
    wrong = [differences(instants, book, name) for name, instants in {
        "later": [soon * SEC], "before": [(int(now) + 8) * SEC], "gone": [],
        "each": seconds(lasts["each"], (int(now) + 50) * SEC)}.items()]
    return "; ".join(filter(None, wrong))


@test("what is planned and is no instant any more by the tzdata of who takes over is taken back",
      nodes=0, around=zones)
def taken_back(c):
    """Two instants, 3 s apart: when the first is near both are planned, by one of two nodes."""
    folders = [os.path.join(c.tool, name) for name in ("old", "new")]
    for hours, folder in enumerate(folders, 1):
        os.mkdir(folder)
        set_zone(folder, hours)
        c.add_node(env={"TZDIR": folder})
    if not c.ready():
        return "the cluster does not get ready"
    first = int(time.time()) + 14
    first += max(0, first % 60 - 55) and 60 - first % 60
    at = time.gmtime(first)
    put_all(c, [call("s%d" % i, tz="Zone", misfire="ignore", cron="%d,%d %d %d * * ?" % (
        at.tm_sec, at.tm_sec + 3, at.tm_min, (at.tm_hour + 1) % 24)) for i in range(12)])
    theirs = "select count(*) from twheel.job"
    if not c.wait(lambda: c.sql(theirs) != "0", 40):
        return "nothing is planned"
    planned = c.rows("select tag, (extract(epoch from at) * 1000000)::bigint from twheel.job")
    c.nodes[0].signal(signal.SIGTERM)
    c.nodes[0].process.wait()
    c.nodes[0].env["TZDIR"] = folders[1]
    c.nodes[0].start()
    time.sleep(max(0, first + 5 - time.time()))
    fired = [name for name, states in ends(c).items() if (first + 3) * SEC in states]
    print("# %d planned, %d fired" % (len(planned), sum(map(len, ends(c).values()))))
    return "fired: %s" % fired if fired else "" if planned else "nothing was planned"
