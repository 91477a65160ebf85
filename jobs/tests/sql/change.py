# SPDX-License-Identifier: GPL-2.0
"""Cancel, move, and what became of a job."""

from harness import equal, test, true

SUBMIT = "select twheel.submit('h', now() + interval '1 hour', 'x', tag => '%s')"


def submit(s, tag="tag"):
    return s.app.value(SUBMIT % tag)


def state(s, job, state):
    s.owner.rows("update twheel.job set state = %d where id = %s" % (state, job))


def row(s, job):
    return s.owner.rows("select * from twheel.job where id = %s" % job)


HAND_OVER = ("with d as (delete from twheel.job where id = %s returning *)"
             " insert into twheel.queue (job, due, idem, service, payload)"
             " select id, at, idem, service, payload from d")


@test("a job that waits is cancelled")
def _(s):
    job, other = submit(s), submit(s)
    equal(s.app.value("select twheel.cancel(%s)" % job), "cancelled")
    equal(s.owner.column("select id from twheel.job"), [other])
    equal(s.owner.rows("select job, state, tag, payload from twheel.backlog"),
          [(job, "5", "tag", None)])


@test("a job is cancelled once")
def _(s):
    job = submit(s)
    s.app.value("select twheel.cancel(%s)" % job)
    equal(s.app.value("select twheel.cancel(%s)" % job), "gone")
    equal(s.owner.value("select count(*) from twheel.backlog"), "1")


@test("a job that runs is not cancelled")
def _(s):
    job = submit(s)
    for running in (1, 2):
        state(s, job, running)
        before = row(s, job)
        equal(s.app.value("select twheel.cancel(%s)" % job), "running")
        equal(row(s, job), before)
    equal(s.owner.rows("select * from twheel.backlog"), [])


@test("what is no job is unknown to who cancels it")
def _(s):
    submit(s)
    equal(s.app.column("select twheel.cancel(j) from unnest(array[-1, null]) j"),
          ["unknown", "unknown"])
    equal(s.owner.value("select count(*) from twheel.job"), "1")


@test("a cancel that meets a hand-over waits, and cancels what nobody has taken")
def _(s):
    job = submit(s)
    s.node.rows("begin; " + HAND_OVER % job)
    s.app.send("select twheel.cancel(%s)" % job)
    s.blocked(s.app)
    s.node.rows("commit")
    equal(s.app.answer(), [("cancelled",)])
    equal(s.app.column("select seq from twheel.take('h')"), [])
    equal(s.owner.column("select job from twheel.backlog where state = 5"), [job])


@test("a move that meets a hand-over waits, and takes the job out of the queue")
def _(s):
    job = submit(s)
    s.node.rows("begin; " + HAND_OVER % job)
    s.app.send("select twheel.move(%s, '2100-01-01Z')" % job)
    s.blocked(s.app)
    s.node.rows("commit")
    equal(s.app.answer(), [("moved",)])
    equal(s.app.column("select seq from twheel.take('h')"), [])
    equal(s.owner.column("select due = '2100-01-01Z' from twheel.job where id = %s" % job), ["t"])


@test("a cancel that meets a mark waits, and says that it runs")
def _(s):
    job = submit(s)
    s.node.rows("begin; update twheel.job set state = 1")
    s.app.send("select twheel.cancel(%s)" % job)
    s.blocked(s.app)
    s.node.rows("commit")
    equal(s.app.answer(), [("running",)])
    equal(s.owner.value("select count(*) from twheel.job"), "1")


@test("a cancel that meets a batch which is rolled back cancels")
def _(s):
    job = submit(s)
    s.node.rows("begin; " + HAND_OVER % job)
    s.app.send("select twheel.cancel(%s)" % job)
    s.blocked(s.app)
    s.node.rows("rollback")
    equal(s.app.answer(), [("cancelled",)])


@test("of two that cancel a job one does")
def _(s):
    job = submit(s)
    other = s.more("app")
    other.rows("begin; select twheel.cancel(%s)" % job)
    s.app.send("select twheel.cancel(%s)" % job)
    s.blocked(s.app)
    other.rows("commit")
    equal(s.app.answer(), [("gone",)])
    equal(s.owner.value("select count(*) from twheel.backlog"), "1")


@test("a job that comes back from running while it is cancelled or moved is")
def _(s):
    jobs = [submit(s), submit(s)]
    body = s.owner.value("select pg_get_functiondef('twheel.fate'::regproc)")
    s.owner.rows("create or replace function twheel.fate(job bigint) returns text"
                 " language plpgsql security definer as $$ begin"
                 " update twheel.job j set state = 0 where j.id = $1; return 'waiting'; end $$")
    try:
        session = s.more("app")
        for job in jobs:
            state(s, job, 1)
        equal(session.value("select twheel.cancel(%s)" % jobs[0]), "cancelled")
        equal(session.value("select twheel.move(%s, now())" % jobs[1]), "moved")
    finally:
        s.owner.rows(body)


@test("jobs of a tag are cancelled, and no others")
def _(s):
    for _ in range(3):
        submit(s, "a")
    other, running = submit(s, "b"), submit(s, "a")
    state(s, running, 1)
    equal(s.app.value("select twheel.cancel_tag('a')"), "3")
    equal(s.owner.column("select id from twheel.job order by id"), [other, running])
    equal(s.owner.rows("select count(*), min(state), max(state), min(tag), max(tag)"
                       " from twheel.backlog"), [("3", "5", "5", "a", "a")])


@test("no more jobs of a tag are cancelled than were asked for, the first ones")
def _(s):
    jobs = [submit(s, "a") for _ in range(5)]
    equal(s.app.value("select twheel.cancel_tag('a', 2)"), "2")
    equal(s.owner.column("select id from twheel.job order by id"), jobs[2:])


@test("a thousand jobs of a tag are cancelled if it was not said how many")
def _(s):
    s.app.rows("select twheel.submit('h', '2100-01-01Z', tag => 'a', announce => false)"
               " from generate_series(1, 1001)")
    equal(s.app.value("select twheel.cancel_tag('a', null)"), "1000")
    equal(s.app.value("select twheel.cancel_tag('a')"), "1")


@test("no tag is no job's")
def _(s):
    s.app.value("select twheel.submit('h', '2100-01-01Z')")
    equal(s.app.value("select twheel.cancel_tag(null)"), "0")


@test("who cancels a tag does not wait for jobs that somebody else is at")
def _(s):
    jobs = [submit(s) for _ in range(3)]
    s.node.rows("begin; update twheel.job set state = 1 where id = %s" % jobs[0])
    s.app.rows("set lock_timeout = '10s'")
    equal(s.app.value("select twheel.cancel_tag('tag', 2)"), "2")
    s.node.rows("commit")
    equal(s.owner.column("select id from twheel.job"), [jobs[0]])


@test("a job is moved to another time, and no other job is")
def _(s):
    job, other = submit(s), submit(s)
    before = row(s, other)
    equal(s.app.value("select twheel.move(%s, '2100-01-01Z')" % job), "moved")
    true(s.owner.value("select due = '2100-01-01Z' and at = '2100-01-01Z' from twheel.job"
                       " where id = %s" % job))
    equal(row(s, other), before)


@test("a job that is moved to the past is due now")
def _(s):
    job = submit(s)
    before = s.owner.value("select clock_timestamp()")
    s.app.value("select twheel.move(%s, '2001-01-01Z')" % job)
    true(s.owner.value("select due between '%s' and clock_timestamp() and at = '2001-01-01Z'"
                       " from twheel.job where id = %s" % (before, job)))


@test("a key follows its job that is moved, and no other does")
def _(s):
    job = s.app.value("select twheel.submit('h', '2100-01-01Z', key => 'k')")
    s.app.value("select twheel.submit('h', '2100-01-01Z', key => 'l')")
    s.app.value("select twheel.submit('other', '2100-01-01Z', key => 'k')")
    s.app.value("select twheel.move(%s, '2200-01-01Z')" % job)
    equal(s.owner.column("select job from twheel.seen where until = '2200-01-02Z'"), [job])
    equal(s.owner.value("select count(*) from twheel.seen where until = '2100-01-02Z'"), "2")


@test("a move is announced, unless that is not wanted")
def _(s):
    job = submit(s)
    s.node.rows("listen twheel_job")
    s.app.value("select twheel.move(%s, '2100-01-01Z', false)" % job)
    s.app.value("select twheel.move(%s, '2100-01-02Z')" % job)
    s.node.rows("select 1")
    shard = s.owner.value("select shard from twheel.job")
    equal(s.node.notifications,
          [("twheel_job", "%s %s 4102531200000000 %d 0 0 1" % (shard, job, s.service("h")))])


@test("a job that runs is not moved")
def _(s):
    job = submit(s)
    for running in (1, 2):
        state(s, job, running)
        before = row(s, job)
        equal(s.app.value("select twheel.move(%s, '2100-01-01Z')" % job), "running")
        equal(row(s, job), before)


@test("a move that meets a mark waits, and says that it runs")
def _(s):
    job = submit(s)
    s.node.rows("begin; update twheel.job set state = 1")
    before = s.node.rows("select * from twheel.job")
    s.app.send("select twheel.move(%s, '2100-01-01Z')" % job)
    s.blocked(s.app)
    s.node.rows("commit")
    equal(s.app.answer(), [("running",)])
    equal(row(s, job), before)


@test("a batch that meets a move finds the job due later")
def _(s):
    job = submit(s)
    due = s.owner.value("select due from twheel.job")
    s.app.rows("begin; select twheel.move(%s, '2100-01-01Z')" % job)
    s.node.send("delete from twheel.job j using unnest(array[%s], array['%s'::timestamptz])"
                " u(id, due) where j.id = u.id and j.due = u.due and j.state = 0 returning j.id"
                % (job, due))
    s.blocked(s.node)
    s.app.rows("commit")
    equal(s.node.answer(), [])


@test("a job is not moved to no time of this era")
def _(s):
    job = submit(s)
    before = row(s, job)
    for at in ("'infinity'", "'-infinity'", "'10000-01-01Z'", "'1969-12-31Z'", "null"):
        equal((at, s.app.state("select twheel.move(%s, %s)" % (job, at))), (at, "22008"))
    equal(row(s, job), before)


@test("what is no job is not moved")
def _(s):
    job = submit(s)
    before = row(s, job)
    equal(s.app.column("select twheel.move(j, '2100-01-01Z') from unnest(array[-1, null]) j"),
          ["unknown", "unknown"])
    equal(row(s, job), before)


@test("fate() tells where a job is")
def _(s):
    jobs = [submit(s) for _ in range(5)]
    state(s, jobs[1], 1)
    state(s, jobs[2], 2)
    s.owner.rows(HAND_OVER % jobs[3])
    s.app.value("select twheel.cancel(%s)" % jobs[4])
    equal([s.app.value("select twheel.fate(%s)" % job) for job in jobs + ["-1", "null"]],
          ["waiting", "running", "running", "waiting", "gone", "unknown", "unknown"])
    s.app.rows("select twheel.take('h')")
    equal(s.app.value("select twheel.fate(%s)" % jobs[3]), "running")
