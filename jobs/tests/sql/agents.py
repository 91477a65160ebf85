# SPDX-License-Identifier: GPL-2.0
"""Consumers of broadcasts, which have names."""

from harness import equal, test

TAKE = "select seq from twheel.take('q', 100, agent => '%s') order by 1"


def rows_of(s, *agents, key=None, job=None):
    """As a node hands them over; gives each seq."""
    return [s.owner.value(
        "insert into twheel.queue (job, due, idem, service, agent, order_key, payload) values"
        " (%s, clock_timestamp(), gen_random_uuid(), %d, '%s', %s, 'x') returning seq"
        % (job or "nextval('twheel.job_id')", s.service("q"), agent,
           "'%s'" % key if key else "null")) for agent in agents]


def seen_ago(s, agent, ago):
    s.owner.rows("update twheel.agent set seen = now() - interval '%s' where agent = '%s'"
                 % (ago, agent))


def agents(s):
    return s.owner.column("select agent from twheel.agent where twheel.is_alive(seen) order by 1")


@test("an agent takes what is its own, and what is anybody's")
def _(s):
    a, anybody, b, a2 = rows_of(s, "a", "", "b", "a")
    equal(s.app.column(TAKE % "a"), [a, anybody, a2])
    equal(s.app.column("select seq from twheel.take('q', 100)"), [])
    equal(s.app.column(TAKE % "b"), [b])


@test("one agent does not wait for another of the same order key")
def _(s):
    first = rows_of(s, "a", "b", key="k")
    second = rows_of(s, "a", "b", key="k")
    equal(s.app.column(TAKE % "b"), first[1:])
    s.app.rows("select twheel.finish(%s, 1)" % first[1])
    equal(s.app.column(TAKE % "b"), second[1:])
    equal(s.app.column(TAKE % "a"), first[:1])


@test("who takes is alive for 30 s, and is written down each 5 s")
def _(s):
    s.app.rows(TAKE % "a")
    equal(agents(s), ["a"])
    seen_ago(s, "a", "3 s")
    s.app.rows(TAKE % "a")
    equal(s.owner.value("select seen = now() - interval '3 s' from twheel.agent") == "t"
          or s.owner.value("select seen < now() - interval '2 s' from twheel.agent"), "t")
    seen_ago(s, "a", "31 s")
    equal(agents(s), [])
    s.app.rows(TAKE % "a")
    equal(agents(s), ["a"])


@test("an agent that was seen in the future, as the clock was set, is written down again")
def _(s):
    s.app.rows(TAKE % "a")
    seen_ago(s, "a", "-1 hour")
    s.app.rows(TAKE % "a")
    equal(s.owner.value("select seen <= clock_timestamp() from twheel.agent"), "t")


@test("an agent comes and goes without taking")
def _(s):
    s.app.rows("select twheel.agent_is_here('q', 'a')")
    equal(agents(s), ["a"])
    s.app.rows("select twheel.agent_is_gone('q', 'a')")
    equal(agents(s), [])
    equal(s.app.state("select twheel.agent_is_here('q', '')"), "22001")
    equal(s.app.state("select twheel.agent_is_here('none', 'a')"), "P0002")


@test("what is for an agent that has been gone for an hour fails, and no other")
def _(s):
    rows_of(s, "old", "young", "unknown", "")
    s.app.rows("select twheel.agent_is_here('q', 'young'), twheel.agent_is_here('q', 'old')")
    seen_ago(s, "young", "59 min")
    seen_ago(s, "old", "61 min")
    equal(s.node.value("select twheel.bury()"), "2")
    equal(s.owner.column("select agent from twheel.queue order by 1"), ["", "young"])
    equal(s.app.rows("select agent, state, message from twheel.job_delay_task_backlog order by 1"),
          [(a, "failed", "its agent is gone") for a in ("old", "unknown")])
    equal(s.owner.column("select agent from twheel.agent"), ["young"])


@test("what failed of a broadcast is had again by those for whom it did, as one job")
def _(s):
    s.on_queue("max_attempts = 1")
    rows_of(s, "a", "b", "c", job="777")
    for agent, end in ("a", "fail"), ("b", "finish"), ("c", "fail"):
        seq = s.app.value(TAKE % agent)
        s.app.rows("select twheel.%s(%s, 1)" % (end, seq))
    job = s.app.value("select twheel.requeue(777)")
    equal(s.owner.rows("select job, agent, payload, taken from twheel.queue order by agent"),
          [(job, "a", "\\x78", "0"), (job, "c", "\\x78", "0")])
    equal(s.app.rows("select agent, state, requeued from twheel.job_delay_task_backlog"
                     " where job = 777 order by agent"),
          [("a", "requeued", job), ("b", "finished", None), ("c", "requeued", job)])
    equal(s.app.value("select twheel.requeue(777)"), None)


@test("a broadcast that is over for one of its agents is not moved")
def _(s):
    rows_of(s, "a", "b", job="777")
    s.app.rows("select twheel.finish(%s, 1)" % s.app.value(TAKE % "a"))
    before = s.owner.rows("select * from twheel.queue")
    equal(s.app.value("select twheel.move(777, now() + interval '1 hour')"), "running")
    equal(s.owner.rows("select * from twheel.queue"), before)
    equal(s.owner.rows("select * from twheel.job"), [])


@test("a broadcast that is moved counts its attempts from the most that an agent had")
def _(s):
    rows_of(s, "a", "b", "c", job="777")
    s.owner.rows("update twheel.queue set taken = 3 where agent = 'b'")
    equal(s.app.value("select twheel.move(777, now() + interval '1 hour')"), "moved")
    equal(s.owner.value("select attempt from twheel.job"), "3")


@test("a broadcast that is moved is one for all again, and cancelled it is one that is over")
def _(s):
    rows_of(s, "a", "b", job="777")
    equal(s.app.value("select twheel.move(777, now() + interval '1 hour')"), "moved")
    equal(s.owner.rows("select id, flags from twheel.job"), [("777", "2")])
    s.owner.rows("delete from twheel.job")
    rows_of(s, "a", "b", job="778")
    equal(s.app.value("select twheel.cancel(778)"), "cancelled")
    equal(s.app.column("select state from twheel.job_delay_task_backlog where job = 778"),
          ["cancelled"])
