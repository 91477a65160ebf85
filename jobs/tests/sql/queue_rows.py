# SPDX-License-Identifier: GPL-2.0
"""Rows of a queue: who has them, and who may cancel or move them."""

from harness import equal, test, true

HOUR = "'q', 1, '1 hour'"


def rows(s):
    return s.owner.rows("select * from twheel.queue order by seq")


def one(s, order_key=None):
    """The seq of a row, and its job."""
    seq = s.in_queue([order_key])[0]
    return seq, s.owner.value("select job from twheel.queue where seq = %d" % seq)


def take(session, args="'q'"):
    return [int(seq) for seq in session.column("select seq from twheel.take(%s)" % args)]


def state(s, job):
    return s.app.value("select state from twheel.job_delay_task where id = %s" % job)


def lost(s, seq, taken=1):
    """Whether who took it has it no more."""
    return [s.app.value("select twheel.%s" % call % (seq, taken)) for call in
            ("extend(%d, %d, '1 hour')", "finish(%d, %d)", "fail(%d, %d)")] == ["f", "f", "lost"]


def over(s):
    """The hold of all that is taken."""
    s.owner.rows("update twheel.queue set visible = clock_timestamp() - interval '1 s'")


@test("what nobody has taken is ready, and is cancelled with all that is known of it")
def _(s):
    seq, job = one(s, "o")
    other = one(s)[0]
    s.owner.rows("update twheel.queue set key = 'k', tag = 't' where seq = %d" % seq)
    equal(state(s, job), "ready")
    equal(s.app.value("select twheel.cancel(%s)" % job), "cancelled")
    equal(s.owner.rows("select job, attempt, state, key, order_key, tag, payload from"
                       " twheel.backlog"), [(job, "0", "5", "k", "o", "t", None)])
    equal(take(s.app, "'q', 10"), [other])
    equal(s.app.value("select twheel.cancel(%s)" % job), "gone")


@test("what a consumer has is running, and is neither cancelled nor moved")
def _(s):
    seq, job = one(s)
    take(s.app, HOUR)
    before = rows(s)
    equal(state(s, job), "running")
    equal(s.app.value("select twheel.cancel(%s)" % job), "running")
    equal(s.app.value("select twheel.move(%s, '2100-01-01Z')" % job), "running")
    equal(rows(s), before)
    true(s.app.value("select twheel.finish(%d, 1)" % seq))


@test("what waits for its next attempt is delayed, and is cancelled")
def _(s):
    seq, job = one(s)
    take(s.app, HOUR)
    s.app.rows("select twheel.fail(%d, 1, 'no', '1 hour')" % seq)
    equal(state(s, job), "delay")
    equal(s.app.value("select twheel.cancel(%s)" % job), "cancelled")
    equal(s.owner.rows("select attempt, state from twheel.backlog"), [("1", "5")])
    equal(rows(s), [])


@test("what was given back is nobody's, though nobody else has taken it")
def _(s):
    seq, job = one(s)
    take(s.app, HOUR)
    s.app.rows("select twheel.fail(%d, 1, 'no', '1 hour')" % seq)
    before = rows(s)
    true(lost(s, seq))
    equal(rows(s), before)
    over(s)
    equal(state(s, job), "ready")
    equal(take(s.app, HOUR), [seq])
    true(lost(s, seq))
    true(s.app.value("select twheel.finish(%d, 2)" % seq))


@test("what was not finished in time is ready, and is its consumer's until another takes it")
def _(s):
    seq, job = one(s)
    take(s.app, "'q', 1, '0'")
    equal(state(s, job), "ready")
    true(s.app.value("select twheel.extend(%d, 1, '1 hour')" % seq))
    equal(state(s, job), "running")
    equal(take(s.app), [])
    over(s)
    true(s.app.value("select twheel.finish(%d, 1)" % seq))


@test("what was not finished in time is cancelled, and its consumer is told")
def _(s):
    seq, job = one(s)
    take(s.app, "'q', 1, '0'")
    equal(s.app.value("select twheel.cancel(%s)" % job), "cancelled")
    true(lost(s, seq))
    equal(s.owner.column("select state from twheel.backlog"), ["5"])


@test("a cancel that meets who takes the job says that it runs, and does not wait for long")
def _(s):
    job = one(s)[1]
    other = s.more("app")
    other.rows("begin")
    equal(len(take(other, HOUR)), 1)
    equal(s.app.value("select twheel.cancel(%s)" % job), "running")
    equal(s.app.value("select twheel.move(%s, '2100-01-01Z')" % job), "running")
    other.rows("rollback")
    equal(s.app.value("select twheel.cancel(%s)" % job), "cancelled")


@test("a cancel that meets who finishes, fails or extends says that it runs")
def _(s):
    for call in "finish(%d, 1)", "fail(%d, 1)", "extend(%d, 1, '1 hour')":
        seq, job = one(s)
        take(s.app, "'q', 1, '0'")
        other = s.more("app")
        other.rows("begin; select twheel." + call % seq)
        equal(s.app.value("select twheel.cancel(%s)" % job), "running")
        other.rows("commit")
        s.owner.rows("delete from twheel.queue")


@test("what is being cancelled is passed over by who takes, and had again if it is not")
def _(s):
    seq, job = one(s)
    other = s.more("app")
    for end, left in (("rollback", [seq]), ("commit", [])):
        other.rows("begin; select twheel.cancel(%s)" % job)
        equal(take(s.app, HOUR), [])
        other.rows(end)
        equal(take(s.app, "'q', 1, '0'"), left)


@test("a consumer that meets the cancel of what it has not finished in time has lost it")
def _(s):
    for call in "finish(%d, 1)", "extend(%d, 1, '1 hour')":
        seq, job = one(s)
        take(s.app, "'q', 1, '0'")
        other = s.more("app")
        other.rows("begin; select twheel.cancel(%s)" % job)
        s.app.send("select twheel." + call % seq)
        s.blocked(s.app)
        other.rows("commit")
        equal(s.app.answer(), [("f",)])
    equal(s.owner.column("select state from twheel.backlog"), ["5", "5"])


@test("a cancel that is refused keeps nobody from finishing")
def _(s):
    seq, job = one(s)
    take(s.app, HOUR)
    other = s.more("app")
    other.rows("begin; select twheel.cancel(%s)" % job)
    s.app.rows("set lock_timeout = '10s'")
    true(s.app.value("select twheel.finish(%d, 1)" % seq))
    other.rows("rollback")


@test("what is moved leaves the queue, with its attempts and all that is known of it")
def _(s):
    seq, job = one(s, "o")
    s.owner.rows("update twheel.queue set key = 'k', tag = 't', payload = '\\x00ff'")
    s.owner.rows("insert into twheel.seen values (%d, 'k', %s, now())" % (s.service("q"), job))
    take(s.app, "'q', 1, '0'")
    s.app.rows("select twheel.fail(%d, 1, 'no', '0')" % seq)
    idem = s.owner.value("select idem from twheel.queue")
    equal(s.app.value("select twheel.move(%s, '2100-01-01Z')" % job), "moved")
    equal(rows(s), [])
    equal(s.owner.rows(
        "select id, due = '2100-01-01Z' and at = due, idem, service, attempt, state, key, order_key,"
        " tag, payload, shard = twheel.shard_of(service, 'o') from twheel.job"),
          [(job, "t", idem, str(s.service("q")), "1", "0", "k", "o", "t", "\\x00ff", "t")])
    equal(s.owner.value("select until = '2100-01-02Z' from twheel.seen"), "t")
    equal(state(s, job), "delay")


@test("what is moved to the past is due now")
def _(s):
    job = one(s)[1]
    before = s.owner.value("select clock_timestamp()")
    s.app.rows("select twheel.move(%s, '2001-01-01Z')" % job)
    true(s.owner.value("select due between '%s' and clock_timestamp() from twheel.job" % before))


@test("what is moved holds up nobody of its order key")
def _(s):
    job = one(s, "a")[1]
    seq = one(s, "a")[0]
    equal(s.app.value("select twheel.move(%s, '2100-01-01Z')" % job), "moved")
    equal(take(s.app, HOUR), [seq])


@test("what is in the queue is cancelled by its tag, but for what consumers have")
def _(s):
    has, waits, fails, others = [one(s) for _ in range(4)]
    s.owner.rows("update twheel.queue set tag = 'a'")
    take(s.app, "'q', 1, '1 hour'")
    s.owner.rows("update twheel.queue set tag = 'b' where seq = %d" % others[0])
    s.owner.rows("update twheel.queue set taken = 1, visible = '2100-01-01Z' where seq = %d"
                 % fails[0])
    s.owner.rows("insert into twheel.job (due, at, service, shard, tag) values"
                 " ('2100-01-01Z', '2100-01-01Z', %d, 1, 'a')" % s.service("q"))
    equal(s.app.value("select twheel.cancel_tag('a', 2)"), "2")
    equal(s.owner.column("select seq from twheel.queue order by seq"),
          [str(r[0]) for r in (has, fails, others)])
    equal(s.app.value("select twheel.cancel_tag('a', 2)"), "1")
    equal(s.owner.column("select seq from twheel.queue order by seq"),
          [str(has[0]), str(others[0])])
    equal(s.owner.value("select count(*) from twheel.backlog where state = 5 and tag = 'a'"), "3")


@test("each attempt of a consumer is in the log")
def _(s):
    seq, job = one(s)
    s.on_queue("max_attempts = 4")
    take(s.app, HOUR)
    s.app.rows("select twheel.fail(%d, 1, 'no', '0')" % seq)
    take(s.app, "'q', 1, '0'")
    take(s.app, HOUR)
    true(s.app.value("select twheel.finish(%d, 3)" % seq))
    equal(s.app.rows("select job, service, attempt, outcome, message, late_ms >= 0 and took_ms >= 0"
                     " from twheel.job_delay_task_execlog order by attempt"),
          [(job, "q", "1", "again", "no", "t"),
           (job, "q", "2", "again", "neither finished nor failed", "t"),
           (job, "q", "3", "done", None, "t")])


@test("the last attempt of a consumer is in the log as one that failed")
def _(s):
    s.on_queue("max_attempts = 1")
    failed, lost_ = one(s), one(s)
    take(s.app, "'q', 2, '0'")
    s.app.rows("select twheel.fail(%d, 1, 'no')" % failed[0])
    equal(take(s.app), [])
    equal(s.app.rows("select job, attempt, outcome, message from twheel.job_delay_task_execlog"
                     " order by job"),
          [(failed[1], "1", "failed", "no"),
           (lost_[1], "1", "failed", "neither finished nor failed")])


@test("how late an attempt is counts from when it was to be had, and how long from when it was")
def _(s):
    seq = one(s)[0]
    s.owner.rows("update twheel.queue set due = now() - interval '2 hours',"
                 " visible = now() - interval '1 hour'")
    take(s.app, HOUR)
    s.owner.rows("update twheel.queue set began = began - interval '10 min'")
    s.app.rows("select twheel.finish(%d, 1)" % seq)
    true(s.app.value("select late_ms between 3600000 and 7000000 and took_ms between 600000 and"
                     " 3000000 from twheel.job_delay_task_execlog"))


@test("a requeued job is found by the new one, and requeued no more")
def _(s):
    s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state, message, payload)"
                 " values (1000001, now(), %d, 3, 4, 'no', 'x')" % s.service("q"))
    new = s.app.value("select twheel.requeue(1000001)")
    equal(s.app.rows("select job, state, message from twheel.job_delay_task_backlog"
                     " where requeued = " + new), [("1000001", "requeued", "no")])
    equal(s.app.value("select twheel.requeue(1000001)"), None)
    equal(s.app.rows("select * from twheel.job_delay_task_backlog where state = 'failed'"), [])
