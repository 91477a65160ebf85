# SPDX-License-Identifier: GPL-2.0
"""What people see."""

from harness import equal, test


@test("jobs are shown by the states that people know")
def _(s):
    s.owner.rows(
        "insert into twheel.job (due, at, service, shard, state, tag, payload)"
        " select due::timestamptz, now(), %d, 1, state, tag, 'abc' from (values"
        " ('2100-01-01Z', 0, 'delay'), ('2001-01-01Z', 0, 'ready'), ('infinity', 0, 'paused'),"
        " ('2100-01-01Z', 1, 'running'), ('2100-01-01Z', 2, 'accepted')) v(due, state, tag)"
        % s.service("h"))
    seqs = s.in_queue([None] * 3)
    s.app.rows("select twheel.take('q', 2)")
    s.app.rows("select twheel.fail(%d, 1, 'no', '1 hour')" % seqs[0])
    equal(s.app.rows("select service, state, bytes from twheel.job_delay_task"
                     " order by service, state"),
          [("h", state, "3") for state in ("accepted", "delay", "paused", "ready", "running")]
          + [("q", "delay", "1"), ("q", "ready", "1"), ("q", "running", "1")])
    equal(s.app.rows("select * from twheel.job_delay_task where service = 'h'"
                     " and state <> tag"), [])


@test("what is over is shown by the states that people know")
def _(s):
    h = s.service("h")
    for state in (3, 4, 5, 6):
        s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state)"
                     " values (%d, now(), %d, 1, %d)" % (state, h, state))
    equal(s.app.rows("select job, service, state from twheel.job_delay_task_backlog order by job"),
          [("3", "h", "finished"), ("4", "h", "failed"), ("5", "h", "cancelled"),
           ("6", "h", "requeued")])


@test("calls are shown by what came of them, also of services that are gone")
def _(s):
    h = s.service("h")
    for outcome in range(1, 5):
        s.owner.rows("insert into twheel.execlog (job, late_us, took_us, service, attempt, outcome)"
                     " values (%d, 1500, 2500, %d, 1, %d)" % (outcome, h, outcome))
    s.owner.rows("delete from twheel.service where service = 'h'")
    equal(s.app.rows("select outcome, late_ms, took_ms, service"
                     " from twheel.job_delay_task_execlog order by job"),
          [(outcome, "1.500", "2.500", None)
           for outcome in ("again", "failed", "accepted", "handed over")])


@test("a call that ended its job is shown by the line of that, unless there is one of the call")
def _(s):
    h = s.service("h")
    for job, state, late_us in ((1, 3, 1500), (2, 4, 1500), (3, 6, 1500), (4, 4, "null"),
                                (5, 5, "null")):
        s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state, late_us,"
                     " took_us, status, node, message) values (%d, now(), %d, 2, %d, %s, 2500, 503,"
                     " '00000000-0000-0000-0000-000000000007', 'no')" % (job, h, state, late_us))
    equal(s.app.rows("select job, attempt, outcome, late_ms, took_ms, status, right(node::text, 1),"
                     " message from twheel.job_delay_task_execlog order by job"),
          [(job, "2", outcome, "1.500", "2.500", "503", "7", "no")
           for job, outcome in (("1", "done"), ("2", "failed"), ("3", "failed"))])
