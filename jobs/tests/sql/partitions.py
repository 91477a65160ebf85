# SPDX-License-Identifier: GPL-2.0
"""Partitions of the logs."""

from harness import equal, test, true

CALL = "select twheel.partitions(30)"
TODAY = "(clock_timestamp() at time zone 'UTC')::date"


def parts(s, log="execlog"):
    return s.owner.column("select inhrelid::regclass::text from pg_inherits"
                          " where inhparent = 'twheel.%s'::regclass and"
                          " inhrelid <> 'twheel.%s_other'::regclass order by 1" % (log, log))


def day(s, days, log="execlog"):
    return s.owner.value("select 'twheel.%s_' || to_char(%s + %d, 'YYYYMMDD')"
                         % (log, TODAY, days))


def make(s, days, log="execlog"):
    """The partition of a day; gives its name."""
    s.owner.rows("set timezone = 'UTC'")
    s.owner.rows("create table %s partition of twheel.%s for values from (%s) to (%s)" % (
        (day(s, days, log), log) + tuple(s.owner.rows(
            "select quote_literal(%s + %d), quote_literal(%s + %d)"
            % (TODAY, days, TODAY, days + 1))[0])))
    return day(s, days, log)


def again(s):
    """Nothing but the partitions of today and the next eight days."""
    s.owner.rows("delete from twheel.execlog; delete from twheel.backlog")
    for log in ("execlog", "backlog"):
        for part in parts(s, log):
            s.owner.rows("drop table " + part)
    s.owner.rows(CALL)


def expected(s, log="execlog"):
    return [day(s, i, log) for i in range(9)]


@test("there are partitions of today and the next eight days")
def _(s):
    again(s)
    equal(parts(s), expected(s))
    equal(parts(s, "backlog"), expected(s, "backlog"))


@test("a day of the logs is one of UTC, whatever the caller has set")
def _(s):
    again(s)
    s.owner.rows("drop table " + day(s, 1))
    s.node.rows("set timezone = 'Pacific/Kiritimati'; set datestyle = 'SQL, DMY'")
    s.node.rows(CALL)
    s.owner.rows("set timezone = 'UTC'")
    equal(s.owner.value("select pg_get_expr(relpartbound, oid) from pg_class"
                        " where oid = '%s'::regclass" % day(s, 1)),
          s.owner.value("select format('FOR VALUES FROM (''%%s 00:00:00+00'') TO"
                        " (''%%s 00:00:00+00'')', %s + 1, %s + 2)" % (TODAY, TODAY)))


@test("what is logged comes into the partition of its day, in any time zone")
def _(s):
    again(s)
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        s.app.rows("set timezone = '%s'" % zone)
        s.app.rows("select twheel.cancel(twheel.submit('h', '2100-01-01Z'))")
    equal(s.owner.column("select distinct tableoid::regclass::text from twheel.backlog"),
          [day(s, 0, "backlog")])


@test("what is logged at a time without a partition is kept")
def _(s):
    again(s)
    s.owner.rows("insert into twheel.execlog (at, job, late_us, service, attempt, outcome)"
                 " values (now() + interval '1 year', 1, 1, 1, 1, 0)")
    equal(s.owner.value("select count(*) from twheel.execlog_other"), "1")


@test("partitions that are there are left as they are")
def _(s):
    again(s)
    oids = s.owner.rows("select inhrelid from pg_inherits order by 1")
    s.node.rows(CALL)
    equal(s.owner.rows("select inhrelid from pg_inherits order by 1"), oids)


@test("one makes partitions at a time, and others do not wait")
def _(s):
    again(s)
    s.owner.rows("drop table " + day(s, 8))
    other = s.more("node")
    other.rows("begin; " + CALL)
    s.node.rows("set statement_timeout = '10s'")
    equal(s.node.state(CALL), None)
    other.rows("commit")
    equal(parts(s), expected(s))


@test("who reads a log stops no partition for ever, and is no error")
def _(s):
    again(s)
    s.owner.rows("drop table " + day(s, 8))
    old = make(s, -40, "backlog")
    s.owner.rows("begin; select * from twheel.execlog; select * from twheel.backlog")
    equal(s.node.state(CALL), None)
    s.owner.rows("commit")
    equal(parts(s), expected(s)[:8])
    s.node.rows(CALL)
    equal(parts(s), expected(s))
    true(old not in parts(s, "backlog"))


@test("who reads an old partition stops no new one")
def _(s):
    again(s)
    old = make(s, -40)
    s.owner.rows("drop table " + day(s, 8))
    s.owner.rows("begin; select * from " + old)
    equal(s.node.state(CALL), None)
    s.owner.rows("commit")
    equal(parts(s), [old] + expected(s))


@test("who reads one log stops no partition of the other")
def _(s):
    again(s)
    s.owner.rows("drop table " + day(s, 8, "backlog"))
    s.owner.rows("begin; select * from twheel.execlog")
    s.node.rows(CALL)
    s.owner.rows("commit")
    equal(parts(s, "backlog"), expected(s, "backlog"))


@test("what is older than is to be kept is dropped, the oldest first, one at a time")
def _(s):
    again(s)
    old = [make(s, days) for days in (-33, -32, -31, -30)]
    left = []
    for _ in range(4):
        s.node.rows(CALL)
        left.append(parts(s))
    equal(left, [old[1:] + expected(s), old[2:] + expected(s)] + [old[3:] + expected(s)] * 2)


@test("what was logged without a partition is deleted when it is old")
def _(s):
    again(s)
    s.owner.rows("insert into twheel.execlog (at, job, late_us, service, attempt, outcome) select"
                 " now() + i * interval '1 day', i, 1, 1, 1, 0 from unnest(array[-32, -29, 40]) i")
    s.node.rows(CALL)
    equal(s.owner.column("select job from twheel.execlog order by 1"), ["-29", "40"])


@test("a day that was logged without a partition stops no other partition")
def _(s):
    again(s)
    for days in (7, 8):
        s.owner.rows("drop table " + day(s, days))
    s.owner.rows("insert into twheel.execlog (at, job, late_us, service, attempt, outcome)"
                 " values (now() + interval '7 days', 1, 1, 1, 1, 0)")
    equal(s.node.state(CALL), None)
    equal(parts(s), expected(s)[:7] + expected(s)[8:])


@test("logs are not kept for less than a day")
def _(s):
    again(s)
    for days in ("0", "-100", "null"):
        equal((days, s.node.state("select twheel.partitions(%s)" % days)), (days, "22023"))
    equal(parts(s), expected(s))
