# SPDX-License-Identifier: GPL-2.0
"""Schedules: what they may be, and that an edit leaves each instant one job, whoever is at it."""

from client import Error
from harness import equal, test, true

PUT = "select twheel.schedule('s', 'q', cron => '* * * * * *'%s)"
# As a node plans: instants so many ms from now, and "last" with them.
PLAN = ("with c as (select id, shard from twheel.schedule where schedule = 's'),"
        " t as (select date_trunc('milliseconds', clock_timestamp()) as clock),"
        " i as (insert into twheel.job (due, at, service, shard, schedule, tag)"
        " select clock + i * interval '1 ms', clock + i * interval '1 ms', %d, c.shard, c.id, 's'"
        " from c, t, unnest(array[%s]) i returning at)"
        " update twheel.schedule s set last = clock + %d * interval '1 ms', next = clock from c, t"
        " where s.id = c.id returning clock")


def put(s, more=""):
    return s.app.value(PUT % more)


def plan(s, *ms, last=None):
    """The time from which ms count, as us since 1970."""
    clock = s.owner.value(PLAN % (s.service("q"), ", ".join(map(str, ms)),
                                  max(ms) if last is None else last))
    return int(s.owner.value("select (extract(epoch from '%s'::timestamptz) * 1000000)::bigint"
                             % clock))


def of(s, columns):
    return s.owner.rows("select %s from twheel.schedule where schedule = 's'" % columns)[0]


def us(s, column):
    return int(of(s, "(extract(epoch from %s) * 1000000)::bigint" % column)[0])


def jobs(s):
    return int(s.owner.value("select count(*) from twheel.job"))


def state_of(session):
    try:
        session.answer()
    except Error as error:
        return error.state
    return None


@test("a schedule is made, replaced, shown and deleted")
def _(s):
    equal(put(s), "t")
    equal(put(s, ", tz => 'Europe/Berlin', misfire => 'ignore', overlap => 'skip'"), "f")
    equal(s.app.rows("select service, state, cron, tz, misfire, overlap, version"
                     " from twheel.job_schedule"),
          [("q", "active", "* * * * * *", "Europe/Berlin", "ignore", "skip", "2")])
    equal(s.app.value("select twheel.unschedule('s')"), "t")
    equal(s.app.value("select twheel.unschedule('s')"), "f")
    equal(s.app.rows("select * from twheel.job_schedule"), [])


@test("nodes are told of a schedule that is made or changed, and not of one that is as it was")
def _(s):
    s.node.rows("listen twheel_schedule")
    for sql, nr in ((PUT % "", 1), (PUT % "", 0), (PUT % ", payload => 'x'", 1),
                    ("select twheel.pause_schedule('s')", 1),
                    ("select twheel.pause_schedule('s')", 0)):
        s.node.notifications.clear()
        s.app.rows(sql)
        s.node.rows("select")
        equal((sql, len(s.node.notifications)), (sql, nr))


@test("what a new schedule has planned is after it was made")
def _(s):
    before = s.owner.value("select clock_timestamp()")
    put(s)
    true(of(s, "last >= '%s' and last <= clock_timestamp() and next = '-infinity'" % before)[0])
    equal(of(s, "shard = twheel.shard_of(service, 's')")[0], "t")


@test("the first time of an interval that does not say when is at once, and stays when others are "
      "edited")
def _(s):
    every = "select twheel.schedule('s', 'q', every => '%s', payload => '%s')"
    s.app.rows(every % ("1.5 s", "a"))
    equal(of(s, "every_ms, began > last"), ("1500", "t"))
    began = of(s, "began")
    s.app.rows(every % ("1.5 s", "b"))
    equal(of(s, "began"), began)
    s.owner.rows("update twheel.schedule set next = now() + interval '1 s'")    # as nodes do
    s.app.rows(every % ("2 s", "b"))
    true(of(s, "began > last and began > '%s'" % began[0])[0])


@test("an edit of what is done takes back what is planned, to be planned again from the first on")
def _(s):
    put(s)
    clock = plan(s, -50, 500, 1500)
    put(s, ", payload => 'new'")
    equal(jobs(s), 1)
    equal(us(s, "last"), clock + 500000 - 1)
    equal(of(s, "version, timing"), ("2", "1"))
    equal(us(s, "next"), clock)


@test("an edit of the times counts from now on")
def _(s):
    put(s)
    clock = plan(s, -50, 500, 1500)
    s.app.rows("select twheel.schedule('s', 'q', cron => '0 * * * *')")
    equal(jobs(s), 1)
    true(clock <= us(s, "last") < clock + 500000)


@test("other times count from the last instant that was planned, if nodes are behind")
def _(s):
    for behind in True, False:
        put(s)
        clock = plan(s, -5000, last=-5000)
        s.owner.rows("update twheel.schedule set next = clock_timestamp() %s interval '1 s'"
                     % ("-" if behind else "+"))
        put(s, ", tz => 'Asia/Tokyo'")
        equal((behind, us(s, "last") == clock - 5000000), (behind, behind))
        equal(of(s, "timing, next"), ("2", "-infinity"))
        s.owner.rows("delete from twheel.schedule; delete from twheel.job")


@test("what has begun before its time, and what comes before that, is not planned again")
def _(s):
    for change, last in (", payload => 'x'", 799999), (", tz => 'Asia/Tokyo'", 700000):
        put(s)
        clock = plan(s, 600, 700, 800)
        s.owner.rows("update twheel.job set state = 1, attempt = 1 where at = (select min(at) +"
                     " interval '100 ms' from twheel.job)")
        put(s, change)
        equal(jobs(s), 2)
        equal(us(s, "last"), clock + last)
        s.owner.rows("delete from twheel.schedule; delete from twheel.job")


@test("what waits to be repeated was begun")
def _(s):
    put(s)
    clock = plan(s, 600, 700)
    s.owner.rows("update twheel.job set attempt = 1 where at = (select min(at) from twheel.job)")
    put(s, ", slack_ms => 5")
    equal((jobs(s), us(s, "last")), (1, clock + 699999))


@test("an edit when nothing is planned changes no time")
def _(s):
    put(s)
    last = us(s, "last")
    put(s, ", payload => 'x'")
    equal(us(s, "last"), last)


@test("a schedule that is paused has nothing planned, and goes on where it was")
def _(s):
    put(s)
    clock = plan(s, 500, 1500)
    equal(s.app.value("select twheel.pause_schedule('s')"), "t")
    equal((jobs(s), us(s, "last")), (0, clock + 499999))
    equal(of(s, "next, paused"), ("infinity", "t"))
    equal(s.app.value("select state from twheel.job_schedule"), "paused")
    s.app.rows("select twheel.pause_schedule('s', false)")
    equal((us(s, "last"), of(s, "next")), (clock + 499999, ("-infinity",)))
    equal(s.app.value("select twheel.pause_schedule('none')"), "f")


@test("a schedule stays paused or active if it is replaced with null, and is active if it is not")
def _(s):
    put(s, ", paused => null")
    equal(of(s, "paused"), ("f",))
    s.app.rows("select twheel.pause_schedule('s')")
    put(s, ", paused => null, payload => 'x'")
    equal(of(s, "paused"), ("t",))
    put(s, ", payload => 'x'")
    equal(of(s, "paused"), ("f",))


@test("who deletes a schedule takes back what is planned, and what has begun goes on")
def _(s):
    put(s)
    plan(s, -50, 500, 600)
    s.owner.rows("update twheel.job set state = 1 where at = (select min(at) from twheel.job)")
    s.app.rows("select twheel.unschedule('s')")
    equal(s.owner.column("select state from twheel.job"), ["1"])


@test("a job of a schedule that is moved is none of its instants any more")
def _(s):
    put(s)
    clock = plan(s, 500, 600)
    s.owner.rows("update twheel.job set flags = 7")
    job = s.owner.value("select id from twheel.job order by at limit 1")
    s.app.rows("select twheel.move(%s, now() + interval '1 hour')" % job)
    equal(s.owner.rows("select schedule, flags from twheel.job where id = " + job), [(None, "3")])
    put(s, ", payload => 'x'")
    equal((jobs(s), us(s, "last")), (1, clock + 599999))


@test("what is planned is taken back if the zone has changed, but not if somebody has edited it")
def _(s):
    put(s)
    clock = plan(s, -50, 500, 1500)
    call = "select twheel.replan(id, 1, %s) from twheel.schedule"
    equal(s.node.value(call % "last - interval '1 us'"), "f")
    equal(s.node.value(call % "last"), "t")
    equal((jobs(s), of(s, "timing, version, next")), (1, ("2", "1", "-infinity")))
    true(clock <= us(s, "last") < clock + 500000)
    equal(s.node.value(call % "last"), "f")


@test("a schedule is run now, besides its times, and also if it is paused")
def _(s):
    put(s, ", payload => 'x', overlap => 'skip', paused => true, slack_ms => 7")
    s.node.rows("listen twheel_job")
    job = s.app.value("select twheel.run_schedule('s')")
    equal(s.owner.rows("select id, order_key, tag, schedule, flags, payload, slack_ms,"
                       " due <= clock_timestamp(), shard = twheel.shard_of(service, 's')"
                       " from twheel.job"),
          [(job, "s", "s", None, "1", "\\x78", "7", "t", "t")])
    s.node.rows("select")
    equal(s.node.notifications[0][1].split()[1::4] + s.node.notifications[0][1].split()[6:],
          [job, "1", "1"])
    equal(s.app.value("select twheel.run_schedule('none')"), None)


@test("a service that has a schedule is not deleted")
def _(s):
    put(s)
    equal(s.node.state("delete from twheel.service where service = 'q'"), "2BP01")
    s.app.rows("select twheel.unschedule('s')")
    s.node.rows("delete from twheel.service where service = 'q'")


@test("who makes a schedule of a service that is being deleted waits, and finds none")
def _(s):
    s.owner.rows("begin; delete from twheel.service where service = 'q'")
    s.app.send(PUT % "")
    s.blocked(s.app)
    s.owner.rows("commit")
    equal(state_of(s.app), "23503")


@test("an edit waits for who plans, and takes back what that has planned")
def _(s):
    put(s)
    s.node.rows("begin")
    s.node.rows(PLAN % (s.service("q"), "500, 1500", 1500))
    s.app.send(PUT % ", payload => 'x'")
    s.blocked(s.app)
    s.node.rows("commit")
    s.app.answer()
    equal(jobs(s), 0)
    true(of(s, "last < clock_timestamp() + interval '500 ms'")[0])


@test("an edit waits for who begins a job, which is not planned again then")
def _(s):
    put(s)
    clock = plan(s, 2000, 3000)
    s.node.rows("begin; update twheel.job set state = 1, attempt = 1 where at = (select min(at)"
                " from twheel.job)")
    s.app.send(PUT % ", payload => 'x'")
    s.blocked(s.app)
    s.node.rows("commit")
    s.app.answer()
    equal((jobs(s), us(s, "last")), (1, clock + 2999999))


@test("in a snapshot of before an edit takes back all that is planned, or fails")
def _(s):
    for change in ("select", PLAN % (s.service("q"), "5000", 5000),
                   "update twheel.job set state = 1, attempt = 1",
                   "delete from twheel.job", "insert into twheel.job (due, at, service, shard,"
                   " schedule) select due, at, service, shard, schedule from twheel.job"):
        for edit in (PUT % ", payload => 'x'", PUT % ", tz => 'Asia/Tokyo'",
                     "select twheel.pause_schedule('s')", "select twheel.unschedule('s')"):
            put(s)
            plan(s, 3000, 4000)
            s.app.rows("begin isolation level repeatable read; select * from twheel.job_schedule")
            if change.startswith("insert"):    # as a node does, which has written "last" with it
                s.node.rows("begin; update twheel.schedule set last = last; %s; commit" % change)
            else:
                s.node.rows(change)
            state = s.app.state(edit)
            s.app.rows("commit")
            equal((change, edit, state),
                  (change, edit, None if change == "select" else "40001"))
            s.owner.rows("delete from twheel.schedule; delete from twheel.job")


@test("two edits at the same time come one after the other")
def _(s):
    put(s)
    s.app.rows("begin")
    put(s, ", payload => 'a'")
    other = s.more("app")
    other.send(PUT % ", payload => 'b'")
    s.blocked(other)
    s.app.rows("commit")
    other.answer()
    equal(of(s, "version, payload"), ("3", "\\x62"))


GOOD = {"schedule": "'s'", "service": "(select id from twheel.service where service = 'q')",
        "cron": "'*/5 0-3 ? JAN,MAR 6#3'", "tz": "'America/Argentina/Buenos_Aires'"}
EVERY = {"cron": "null", "tz": "null", "every_ms": "1"}
BAD = [("schedule", {"schedule": v}) for v in (
    "''", "'-x'", "repeat('x', 101)", "'a b'", "null")] + [
    ("cron", {"cron": v}) for v in (
        "''", "'* * * *'", "'* * * * * * * *'", "'* * * * ;'", "'@'", "'* * * * ' || repeat('1', 500)")
    ] + [("tz", {"tz": v}) for v in ("''", "'/etc/passwd'", "'a/../b'", "'a b'", "'Europe/'")] + [
    ("cron", {"cron": "null", "tz": "null"}), ("cron", {"every_ms": "5"}), ("cron", {"count": "5"}),
    ("tz", {"cron": "null", "every_ms": "5"}),
    ("end_at", {"start_at": "'2000-01-02'", "end_at": "'2000-01-02'"}),
    ("start_at", {"start_at": "'infinity'"}), ("end_at", {"end_at": "'1969-01-01'"}),
    ("misfire", {"misfire": "'never'"}), ("overlap", {"overlap": "'no'"}),
    ("broadcast", {"broadcast": "true",
                   "service": "(select id from twheel.service where service = 'h')"}),
    ("misfire_ms", {"misfire_ms": "999"}), ("misfire_ms", {"misfire_ms": "86400001"}),
    ("slack_ms", {"slack_ms": "-1"}), ("payload", {"payload": "repeat('x', 1048577)::bytea"}),
    ("every_ms", dict(EVERY, every_ms="0")), ("every_ms", dict(EVERY, every_ms="3155760000001")),
    ("count", dict(EVERY, count="0")), ("count", dict(EVERY, count="9007199254740993"))]


@test("a schedule that cannot be is refused by one sentence, which begins with what is wrong")
def _(s):
    insert = "insert into twheel.schedule (%s) values (%s)"
    for row in (GOOD, dict(GOOD, **EVERY)):
        s.node.rows(insert % (", ".join(row), ", ".join(row.values())))
        s.node.rows("delete from twheel.schedule")
    for column, change in BAD:
        row = dict(GOOD, **change)
        try:
            s.node.rows(insert % (", ".join(row), ", ".join(row.values())))
            got = None
        except Error as error:
            got = error.state, error.message.split()[0], "\n" in error.message
        equal((column, change, got), (column, change, ("22023", column, False)))


CALLS = "update twheel.service set kind = 'http', target = 'http://h/' where service = 'q'"


@test("a service with a schedule that is broadcast stays a queue")
def _(s):
    put(s, ", broadcast => true")
    equal(s.node.state(CALLS), "22023")
    equal(s.owner.value("select kind from twheel.service where service = 'q'"), "queue")
    put(s)
    equal(s.node.state(CALLS), None)


@test("nothing is broadcast to a service that stops being a queue meanwhile")
def _(s):
    s.node.rows("begin; " + CALLS)
    s.app.send("select twheel.schedule('s', 'q', '* * * * * *', broadcast => true)")
    s.blocked(s.app)
    s.node.rows("commit")
    equal(state_of(s.app), "22023")
    equal(s.owner.rows("select * from twheel.schedule"), [])


@test("a schedule is not renamed, nor changed to one that cannot be")
def _(s):
    put(s)
    for change in "schedule = 't'", "cron = null", "count = 3", "misfire_ms = 1":
        equal((change, s.node.state("update twheel.schedule set " + change)), (change, "22023"))


@test("an interval is of whole milliseconds, and not of months")
def _(s):
    for every in "0 s", "-1 s", "0.0005 s", "1 month", "1 year", "200 years":
        equal((every, s.app.state("select twheel.schedule('s', 'q', every => '%s')" % every)),
              (every, "22023"))
    s.app.rows("select twheel.schedule('s', 'q', every => '1 day 2 ms')")
    equal(of(s, "every_ms"), ("86400002",))
