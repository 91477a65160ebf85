# SPDX-License-Identifier: GPL-2.0
"""The statements by which nodes plan schedules, and look at jobs of theirs that may be skipped."""

from harness import equal, test
from plans import statement

NODE = "00000000-0000-0000-0000-000000000001"


def prepare(s, file, name):
    s.node.rows("deallocate all; prepare p " + statement(file, name))


def begin(s, **columns):
    """A schedule s of the queue, of which 10 s ago is the last; a node holds all shards."""
    s.owner.rows("update twheel.shard set owner = '%s', fence = 1" % NODE)
    s.app.rows("select twheel.schedule('s', 'q', cron => '* * * * * ?')")
    s.owner.rows("update twheel.schedule set last = date_trunc('s', now()) - interval '10 s',"
                 " created = date_trunc('s', now())")     # what times here count from
    for column, value in columns.items():
        s.owner.rows("update twheel.schedule set %s = %s" % (column, value))


def plan(s, ats, last=-10, timing="timing", until=None, misfired=None, held=True, fence=1):
    """Times are s from now; gives kinds of rows that came back."""
    row = s.owner.rows("select id, shard, created, %s from twheel.schedule" % timing)[0]

    def at(seconds):
        return "null" if seconds is None else "'%s'::timestamptz + interval '%s s'" % (
            row[2], seconds)
    sql = "execute p('%s', '{%s}', '{%s}', '{%s}', '{%s}', array[%s], array[%s], array[%s]," \
          " array[%s]::timestamptz[], '{null}', %s, %s)" % (
              NODE, row[1] if held else "", fence if held else "", row[0], row[3], at(last),
              at(max(ats) if until is None else until), at(9), at(misfired),
              "array[%s]::int4[]" % ", ".join([row[0]] * len(ats)),
              "array[%s]::timestamptz[]" % ", ".join(map(at, ats)))
    return sorted(int(r[9]) for r in s.node.rows(sql))


def jobs(s):
    """Seconds of each."""
    return [int(x) for x in s.owner.column(
        "select extract(epoch from j.at - (select created from twheel.schedule))::int"
        " from twheel.job j order by at")]


def last(s):
    return int(s.owner.value("select extract(epoch from last - created)::int from twheel.schedule"))


@test("who plans keeps the service until the jobs are committed")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s)
    s.node.rows("begin")
    plan(s, [5])
    lock = "select from twheel.service where service = 'q' for update nowait"
    equal(s.owner.state(lock), "55P03")
    s.node.rows("commit")
    equal(s.owner.state(lock), None)


@test("who plans makes the jobs and writes down the last")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s, overlap="'queue'", broadcast="true", slack_ms="7", payload="'x'")
    equal(plan(s, [-9, 5, 6]), [0, 1, 2, 2, 2])
    equal((jobs(s), last(s)), ([-9, 5, 6], 6))
    equal(s.owner.rows("select service, slack_ms, order_key, tag, flags, payload, due > at,"
                       " schedule = (select id from twheel.schedule), shard = (select shard from"
                       " twheel.schedule), attempt, state from twheel.job order by at"),
          [(str(s.service("q")), "7", "s", "s", flags, "\\x78", late, "t", "t", "0", "0")
           for flags, late in (("2", "t"), ("6", "f"), ("6", "f"))])


@test("who plans from another last, other times, without the shard or what is paused makes no job")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s)
    for wrong in (dict(last=-11), dict(last=-9), dict(timing="timing + 1"),
                  dict(timing="timing - 1"), dict(held=False), dict(fence=2)):
        equal((wrong, plan(s, [1, 2], **wrong), jobs(s), last(s)), (wrong, [0], [], -10))
    s.owner.rows("update twheel.schedule set paused = true")
    equal((plan(s, [1, 2]), jobs(s)), ([0], []))


@test("who plans twice makes jobs once")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s)
    plan(s, [1, 2])
    equal((plan(s, [1, 2]), jobs(s)), ([0], [1, 2]))


@test("who plans passes over what somebody has locked, and has what is said then")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s)
    s.app.rows("begin; select twheel.schedule('s', 'q', cron => '* * * * * ?', payload => 'new')")
    equal((plan(s, [1]), jobs(s)), ([0], []))
    s.app.rows("commit")
    equal((plan(s, [1]), s.owner.column("select payload from twheel.job")), ([0, 1, 2], ["\\x6e6577"]))


@test("who plans leaves alone what belongs to a service that somebody has locked")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s, misfire="'fire_now'")
    s.owner.rows("insert into twheel.job (due, at, service, shard, schedule, flags) select c, c,"
                 " service, shard, id, 4 from (select *, created - interval '8 s' as c"
                 " from twheel.schedule) s")
    s.owner.rows("begin; select from twheel.service where service = 'q' for update")
    equal((plan(s, [1], misfired=-6), jobs(s), last(s)), ([0], [-8], -10))
    s.owner.rows("rollback")
    equal((plan(s, [1], misfired=-6), jobs(s), last(s)), ([0, 1, 2, 3], [1], 1))


@test("who plans what was edited meanwhile makes no job, if the times or what was planned are others")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s, next="now() + interval '1 s'")
    plan(s, [61, 62])
    s.app.rows("select twheel.schedule('s', 'q', cron => '* * * * * ?', payload => 'x')")
    equal((plan(s, [63, 64], last=62), jobs(s)), ([0], []))
    plan(s, [61, 62], last=60.999999)
    s.app.rows("select twheel.schedule('s', 'q', cron => '*/2 * * * * ?', payload => 'x')")
    equal((plan(s, [63, 64], last=62, timing="timing - 1"), jobs(s)), ([0], []))


@test("with instants that have misfired goes what was planned of them and has not begun")
def _(s):
    prepare(s, "plan.c", "plan")
    begin(s)
    s.owner.rows("insert into twheel.job (due, at, service, shard, state, attempt, schedule, flags)"
                 " select created + at * interval '1 s', created + at * interval '1 s', service,"
                 " shard, state, attempt, id, flags from twheel.schedule, (values (-10, 0, 0, 4),"
                 " (-11, 1, 1, 4), (-12, 0, 0, 0), (-13, 0, 1, 4), (-3, 0, 0, 4))"
                 " v(at, state, attempt, flags)")
    equal(plan(s, [-5, 1], misfired=-5), [0, 1, 2, 2, 3])
    equal(jobs(s), [-13, -12, -11, -5, -3, 1])
    equal(s.app.column("select state from twheel.job_delay_task_backlog"), ["skipped"])


def owe(s, *rows):
    """Jobs of the schedule: (s from now, flags); gives an id for each."""
    return [s.owner.value(
        "insert into twheel.job (due, at, service, shard, schedule, flags, order_key, tag)"
        " select c, c, service, shard, id, %d, case when %d & 1 = 1 then 's' end, 's'"
        " from (select *, clock_timestamp() + interval '%s s' as c from twheel.schedule) s"
        " returning id" % (flags, flags, at)) for at, flags in rows]


def send_all(s, ids):
    """The rows that come back of a batch of these jobs, as they are."""
    jobs_of = s.owner.rows("select array_agg(id order by id), array_agg(due order by id),"
                           " array_agg(shard order by id), array_agg(0), array_agg(service order by"
                           " id) from twheel.job where id in (%s)" % ",".join(ids))[0]
    shards = s.owner.rows("select array_agg(shard), array_agg(fence) from twheel.shard")[0]
    return s.node.rows("execute p('%s', %s)" % (NODE, ", ".join(
        "'%s'" % values for values in shards + jobs_of)))


def send(s, ids):
    """(id, what is left to look at), None for what is over; and those that are there still."""
    rows = send_all(s, ids)
    return (sorted((i, rest) for kind, i, rest in rows if kind == "1"),
            sorted(i for kind, i, _ in rows if kind == "2"))


def check(s, *rows, others=()):
    ids = owe(s, *rows)
    for sql in others:
        s.owner.rows(sql)
    done, still = send(s, ids)
    names = {i: nr for nr, i in enumerate(ids)}
    return [(names[i], rest) for i, rest in done], [names[i] for i in still]


def clean(s):
    s.owner.rows("delete from twheel.job; delete from twheel.queue; delete from twheel.backlog")


ON, GONE, SKIPS = "\\x00", None, "\\x01"


@test("of late instants misfires what the schedule says, and what is later than it says")
def _(s):
    prepare(s, "fire.c", "check")
    begin(s, misfire_ms="5000", next="now() + interval '1 s'")
    for policy, first, second in (("do_nothing", GONE, GONE), ("fire_now", GONE, ON),
                                  ("smart", GONE, ON)):
        s.owner.rows("update twheel.schedule set misfire = '%s'" % policy)
        s.owner.rows("update twheel.schedule set next = now() + interval '1 s'")
        equal((policy, check(s, (-8, 4), (-7, 4), (-3, 4))),
              (policy, ([(0, first), (1, second), (2, ON)], [])))
        clean(s)


@test("the last of late instants misfires if a later one is to be planned that has")
def _(s):
    prepare(s, "fire.c", "check")
    for after, rest in (-6, GONE), (-4, ON), (1, ON):
        begin(s, misfire_ms="5000", next="clock_timestamp() + interval '%d s'" % after)
        equal((after, check(s, (-8, 4))), (after, ([(0, rest)], [])))
        clean(s)


@test("what was to be repeated, and one of a schedule that is gone, does not misfire")
def _(s):
    prepare(s, "fire.c", "check")
    begin(s, misfire_ms="5000", misfire="'do_nothing'")
    equal(check(s, (-8, 4), others=["update twheel.job set attempt = 1"]), ([(0, ON)], []))
    clean(s)
    ids = owe(s, (-8, 4))
    s.owner.rows("delete from twheel.schedule")
    equal(send(s, ids), ([(ids[0], ON)], []))


@test("what is not to overlap is skipped if the one before waits, runs or is in the queue")
def _(s):
    prepare(s, "fire.c", "check")
    begin(s)
    equal(check(s, (-0.2, 5), (-0.1, 5)), ([(0, ON), (1, GONE)], []))
    clean(s)
    equal(check(s, (-0.2, 1), others=[
        "insert into twheel.job (due, at, service, shard, state, order_key) select now(), now() +"
        " interval '1 hour', service, shard, 1, 's' from twheel.schedule"]), ([(0, GONE)], []))
    equal(s.app.column("select message from twheel.job_delay_task_backlog"),
          ["the one before is not over"])
    clean(s)
    s.in_queue(["s"])
    equal(check(s, (-0.2, 1)), ([(0, GONE)], []))
    clean(s)
    s.in_queue(["s"], "r")
    equal(check(s, (-0.2, 1)), ([(0, ON)], []))


@test("what is late is looked at for that first, and then for what is before it")
def _(s):
    prepare(s, "fire.c", "check")
    begin(s, misfire_ms="5000", misfire="'fire_now'", next="now() + interval '1 s'")
    ids = owe(s, (-8, 5), (-7, 5))
    equal(send(s, ids), ([(ids[0], GONE), (ids[1], SKIPS)], []))
    equal(send(s, ids[1:]), ([(ids[1], ON)], []))


@test("what is locked, or not due, is there still, and what somebody else has taken is not looked at")
def _(s):
    prepare(s, "fire.c", "check")
    begin(s)
    ids = owe(s, (-0.2, 5), (60, 5), (-0.2, 4))
    s.app.rows("begin; select twheel.cancel(%s)" % ids[0])
    done, still = send(s, ids)
    equal((done, still), ([(ids[2], ON)], ids[:2]))
    s.app.rows("commit")


@test("what is to be looked at, or is for each agent, is not handed over to anybody")
def _(s):
    for name, which in (("hand", [0, 4]), ("hand_unlocked", [0, 4]), ("cast", [2, 6]),
                        ("cast_unlocked", [2, 6]), ("mark", [0, 2, 4, 6])):
        prepare(s, "fire.c", name)
        begin(s)
        s.app.rows("select twheel.agent_is_here('q', 'a')")
        ids = {i: flags for flags in range(8) for i in owe(s, (-0.2, flags))}
        s.owner.rows("update twheel.job set order_key = null")
        rows = send_all(s, list(ids))
        equal((name, sorted(ids[r[1]] for r in rows if r[0] == "1")), (name, which))
        equal((name, sorted(ids[r[1]] for r in rows if r[0] == "2")),
              (name, [f for f in range(8) if f not in which]))
        clean(s)


@test("a broadcast has a row for each agent that is alive, and is skipped if none is")
def _(s):
    prepare(s, "fire.c", "cast")
    begin(s)
    ids = owe(s, (-0.2, 2))
    equal(send(s, ids), ([(ids[0], GONE)], []))
    equal(s.app.rows("select state, message from twheel.job_delay_task_backlog"),
          [("skipped", "no agent is there")])
    s.app.rows("select twheel.agent_is_here('q', 'a'), twheel.agent_is_here('q', 'b'),"
               " twheel.agent_is_here('q', 'old'), twheel.agent_is_here('r', 'other')")
    s.owner.rows("update twheel.agent set seen = now() - interval '31 s' where agent = 'old'")
    ids = owe(s, (-0.2, 2))
    equal(send(s, ids), ([(ids[0], "\\x")], []))
    equal(s.owner.rows("select job, agent from twheel.queue order by 2"),
          [(ids[0], "a"), (ids[0], "b")])
