# SPDX-License-Identifier: GPL-2.0
"""Each instant gives exactly one job, whatever is killed and edited."""

import random
import signal
import threading
import time

from cluster import Psql
from ledger import (CLOCK, SEC, Editor, call, clock, compare, differences, ends, is_over, put, put_all,
                    seconds, stamp)
from suite import test


def fill(c, nr, length_s, service="queue", **what):
    """So many schedules, each second or two, which end; and what they should fire."""
    what.setdefault("misfire", "ignore")
    end = clock(c) // SEC * SEC + length_s * SEC
    every = {"%s%d" % (service, i): 1 + i % 2 for i in range(nr)}
    lasts = put_all(c, [call(name, service, cron="*/%d * * * * ?" % s, end_at=stamp(end), **what)
                        for name, s in every.items()])
    return {name: seconds(lasts[name], end, s) for name, s in every.items()}


def kill_nodes(c, times, pause_s=4):
    for i in range(times):
        time.sleep(pause_s * random.uniform(0.5, 1))
        node = c.nodes[i % len(c.nodes)]
        node.kill()
        time.sleep(random.uniform(0, 2))
        node.start()


@test("each instant of a schedule gives one job")
def plain(c):
    expected = fill(c, 20, 12)
    expected.update(fill(c, 20, 12, "http"))
    return compare(c, expected)


@test("edits each 100 ms of what is done leave each instant one job, with what was said then")
def edited(c):
    expected = fill(c, 4, 15)
    expected.update(fill(c, 4, 15, "http"))
    with Editor(c, list(expected), lambda name, nr: (
            "update twheel.schedule set payload = '%d' where schedule = '%s'" % (nr, name))) as e:
        wrong = compare(c, expected)
    # What an editor had been answered 100 ms before an instant is what its job has.
    said = {name: sorted((at, nr) for at, who, nr in e.done if who == name) for name in expected}
    for name, due, payload in c.rows("select tag, (extract(epoch from due) * 1000000)::bigint,"
                                     " coalesce(nullif(convert_from(payload, 'UTF8'), ''), '-1')"
                                     " from app.seen"):
        before = [nr for at, nr in said[name] if at < int(due) - SEC // 10]
        if int(payload) < max(before, default=-1):
            wrong += "; %s at %s has %s, not %d" % (name, due, payload, max(before))
    return wrong + ("" if e.nr > 20 else "; there were %d edits" % e.nr)


@test("edits of the times each 100 ms leave each instant one job")
def retimed(c):
    """The times are the same, in words that differ."""
    expected = fill(c, 4, 12)
    crons = ["*/%d * * * * ?", "*/%d * * ? * *", "*/%d * * * * ? *"]
    with Editor(c, list(expected), lambda name, nr: (
            "update twheel.schedule set cron = '%s' where schedule = '%s'"
            % (crons[nr % 3] % (1 + int(name[-1]) % 2), name))) as e:
        wrong = compare(c, expected)
    return wrong + ("" if e.nr > 20 else "; there were %d edits" % e.nr)


@test("pauses of some 100 ms leave each instant one job")
def paused(c):
    expected = fill(c, 4, 12)
    with Editor(c, list(expected), lambda name, nr: (
            "select twheel.pause_schedule('%s', %s)" % (name, nr % 2 == 0))) as e:
        time.sleep(12)
    c.sql("update twheel.schedule set paused = false")
    wrong = compare(c, expected)
    return wrong + ("" if e.nr > 20 else "; there were %d edits" % e.nr)


@test("moves to another service and back leave each instant one job")
def moved(c):
    c.sql("insert into twheel.service (service, kind) values ('queue2', 'queue')")
    threading.Thread(target=c.consume, args=("queue2",), daemon=True).start()
    expected = fill(c, 4, 12)
    with Editor(c, list(expected), lambda name, nr: (
            "update twheel.schedule set service = (select id from twheel.service where service ="
            " '%s') where schedule = '%s'" % (("queue", "queue2")[nr % 2], name))):
        return compare(c, expected)


@test("nodes that are killed, while schedules are edited, leave each instant one job")
def killed(c):
    expected = fill(c, 6, 25)
    expected.update(fill(c, 6, 25, "http"))
    with Editor(c, list(expected), lambda name, nr: (
            "update twheel.schedule set payload = '%d' where schedule = '%s'" % (nr, name)), 0.3):
        kill_nodes(c, 4)
        return compare(c, expected, 90)


@test("a PostgreSQL that is killed, while schedules are edited, leaves each instant one job")
def killed_postgres(c):
    expected = fill(c, 6, 25)
    expected.update(fill(c, 6, 25, "http"))
    with Editor(c, list(expected), lambda name, nr: (
            "update twheel.schedule set payload = '%d' where schedule = '%s'" % (nr, name)), 0.3):
        for _ in range(2):
            time.sleep(random.uniform(4, 6))
            c.postgres("kill")
            c.postgres("start")
        return compare(c, expected, 90)


@test("a node that is stopped for 10 s, and goes on, leaves each instant one job")
def stopped(c):
    expected = fill(c, 8, 25)
    time.sleep(3)
    c.nodes[0].signal(signal.SIGSTOP)
    time.sleep(10)
    c.nodes[0].signal(signal.SIGCONT)
    return compare(c, expected, 90)


@test("a node whose answers come 10 s late leaves each instant one job")
def late_answers(c):
    expected = fill(c, 8, 25)
    time.sleep(3)
    c.nodes[0].proxy.stall(up=False)
    time.sleep(10)
    c.nodes[0].proxy.go_on()
    return compare(c, expected, 90)


@test("who keeps the row of a schedule locked for some seconds delays that one, and no other")
def locked(c):
    expected = fill(c, 6, 20)
    holder = threading.Thread(target=c.sql, args=(
        "begin; select from twheel.schedule where schedule = 'queue0' for update;"
        "select pg_sleep(12); commit",))
    time.sleep(2)
    holder.start()
    time.sleep(11)    # longer than what is planned ahead lasts
    done = ends(c)
    now = clock(c)
    wrong = "; ".join(differences([at for at in instants if at < now - 3 * SEC],
                                  {name: {at: end for at, end in done.get(name, {}).items()
                                          if at < now - 3 * SEC}}, name)
                      for name, instants in expected.items() if name != "queue0").strip("; ")
    holder.join()
    return wrong + compare(c, expected)


def are_done(c, expected):
    book = ends(c)
    return all(set(instants) <= set(book.get(name, {})) for name, instants in expected.items())


@test("who keeps the row of a service locked delays its schedules, and no others")
def locked_service(c):
    length_s = 12     # longer than what is planned ahead lasts
    delayed, others = fill(c, 4, length_s), fill(c, 4, length_s, "http")
    time.sleep(2)
    holder = Psql(c.conninfo())
    holder.sql("begin; select from twheel.service where service = 'queue' for update")
    wrong = "" if c.wait(lambda: are_done(c, others), 60) else "others wait; "
    if are_done(c, delayed):
        wrong += "nothing was delayed; "
    holder.sql("commit")
    holder.close()
    return wrong + compare(c, dict(delayed, **others))


@test("deleted schedules fire nothing from then on, and one of the same name begins anew")
def deleted(c):
    expected = fill(c, 4, 25, slack_ms=0)
    last = {}
    for i in range(6):
        time.sleep(1.3)
        for name in expected:
            last.setdefault(name, []).append(int(c.sql(
                "select twheel.unschedule('%s') \\g /dev/null\n%s" % (name, CLOCK))))
        if i < 5:
            for name in expected:
                last[name].append(put(c, name, cron="* * * * * ?"))
    if not c.wait(lambda: is_over(c), 30):
        return "it does not end"
    time.sleep(3)
    wrong, book = [], ends(c)
    for name, times in last.items():
        # From the first on it is there until a deletion, and again from when it is made anew.
        there = [(times[2 * i + 1], times[2 * i + 2]) for i in range(5)]
        sure = [at for a, b in there for at in seconds(a, b - SEC // 5)]
        may = {at for a, b in there for at in seconds(a, b)} | set(expected[name])
        got = book.get(name, {})
        first = {at for at in expected[name] if at < times[0] - SEC // 5}
        wrong += ["%s: lost %s" % (name, at) for at in set(sure) | first if at not in got]
        wrong += ["%s: more %s" % (name, at) for at, states in got.items()
                  if at not in may or states != ["finished"] or times[0] < at < times[1]]
    return "; ".join(wrong)


@test("a schedule has as many instants as it says, from its start to its end")
def bounded(c):
    at = (clock(c) // SEC + 4) * SEC
    once = {"misfire": "ignore", "misfire_ms": 60000}
    lasts = put_all(c, [
        call("five", every="700 ms", count=5, start_at=stamp(at), **once),
        call("now", every="1 s", count=3, **once),
        call("until", every="900 ms", start_at=stamp(at), end_at=stamp(at + 4 * SEC), **once),
        call("one", every="1 day", count=1, start_at=stamp(at), **once),
        call("window", cron="* * * * * ?", start_at=stamp(at + SEC), end_at=stamp(at + 3 * SEC),
             **once),
        call("past", every="1 s", count=10, start_at=stamp(at - 10 * SEC), **once)])
    expected = {
        "five": [at + i * 700000 for i in range(5)],
        "now": [lasts["now"] + 1 + i * SEC for i in range(3)],
        "until": [at + i * 900000 for i in range(5)],
        "one": [at],
        "window": [at + i * SEC for i in (1, 2, 3)],
        "past": [at - SEC * i for i in range(1, 11) if at - SEC * i > lasts["past"]]}
    wrong = compare(c, expected)
    states = set(c.sql("select state from twheel.job_schedule").split())
    return wrong or ("" if states == {"ended"} else "states %s" % states)


@test("what cannot be a schedule is told, and becomes one when it is edited", nodes=1)
def told(c):
    c.sql("".join("insert into twheel.schedule (schedule, service, cron, tz) select '%s', id, '%s',"
                  " %s from twheel.service where service = 'queue';" % row for row in (
                      ("bad", "61 * * * *", "null"), ("zone", "* * * * *", "'Mars/Olympus'"),
                      ("never", "0 0 30 2 *", "null"))))
    states = "select schedule || ' ' || state || ' ' || coalesce(error, '') from twheel.job_schedule"
    told_all = ["bad wrong column 1: a number is out of range", "never ended ",
                "zone wrong there is no such time zone"]
    c.wait(lambda: "active" not in c.sql(states), 20)
    got = sorted(x.rstrip() for x in c.sql(states).splitlines())
    if [x.split()[:2] for x in got] != [x.split()[:2] for x in told_all] or "column 1:" not in got[0]:
        return "%s" % got
    c.sql("update twheel.schedule set cron = '* * * * * ?', tz = null,"
          " end_at = clock_timestamp() + interval '3 s'")
    c.wait(lambda: is_over(c), 30)
    return "" if all(len(x) in (3, 4) for x in ends(c).values()) and len(ends(c)) == 3 else str(ends(c))
