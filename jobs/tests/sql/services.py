# SPDX-License-Identifier: GPL-2.0
"""A service that is deleted leaves no job behind."""

from harness import equal, test

FAR = "'2100-01-01Z'"
SUBMIT = "select twheel.submit('h', %s)" % FAR
DELETE = "delete from twheel.service where service = 'h'"


def jobs(s):
    return int(s.owner.value("select count(*) from twheel.job"))


def services(s):
    return s.owner.column("select service from twheel.service where service = 'h'")


@test("a service without jobs is deleted")
def _(s):
    s.owner.rows(DELETE)
    equal(services(s), [])
    equal(s.owner.value("select twheel.remove_service('other')"), "t")
    equal(s.owner.value("select twheel.remove_service('other')"), "f")


@test("a service that has a job, or a row in the queue, is not deleted")
def _(s):
    s.app.rows(SUBMIT)
    s.in_queue([None])
    for name in "h", "q":
        equal(s.node.state("delete from twheel.service where service = '%s'" % name), "2BP01")
        equal(s.node.state("select twheel.remove_service('%s')" % name), "2BP01")
    equal(s.owner.value("select count(*) from twheel.service where service in ('h', 'q')"), "2")


@test("a submit that meets the deletion of its service waits, and finds none")
def _(s):
    s.owner.rows("begin; " + DELETE)
    s.app.send(SUBMIT)
    s.blocked(s.app)
    s.owner.rows("commit")
    equal(state_of(s.app), "P0002")
    equal(jobs(s), 0)


@test("a batch of a node that meets the deletion of a service waits, and finds none")
def _(s):
    batch = ("select twheel.insert_jobs(array[1, 1]::smallint[], array[%d, %d], array[%s, %s]"
             "::timestamptz[], array[null, null], null, null, null, array['', '']::bytea[])"
             % (s.service("other"), s.service("h"), FAR, FAR))
    s.owner.rows("begin; " + DELETE)
    s.node.send(batch)
    s.blocked(s.node)
    s.owner.rows("commit")
    equal(state_of(s.node), "P0002")
    equal(s.node.state(batch), "P0002")
    equal(jobs(s), 0)


@test("a submit that meets a deletion which is rolled back submits")
def _(s):
    s.owner.rows("begin; " + DELETE)
    s.app.send(SUBMIT)
    s.blocked(s.app)
    s.owner.rows("rollback")
    s.app.answer()
    equal(jobs(s), 1)


@test("a deletion that meets a submit waits, and does nothing")
def _(s):
    s.app.rows("begin; " + SUBMIT)
    s.node.send(DELETE)
    s.blocked(s.node)
    s.app.rows("commit")
    equal(state_of(s.node), "2BP01")
    equal((jobs(s), services(s)), (1, ["h"]))


@test("who deletes a service does not wait for long for who submits to it")
def _(s):
    s.app.rows("begin; " + SUBMIT)
    equal(s.node.state("select twheel.remove_service('h')"), "55P03")
    s.app.rows("rollback")
    equal(s.node.value("select twheel.remove_service('h')"), "t")


@test("two submit to a service at the same time")
def _(s):
    s.app.rows("begin; " + SUBMIT)
    other = s.more("app")
    other.rows("set lock_timeout = '10s'; " + SUBMIT)
    s.app.rows("commit")
    equal(jobs(s), 2)


@test("a service is changed while somebody submits to it")
def _(s):
    s.app.rows("begin; " + SUBMIT)
    s.node.rows("set lock_timeout = '10s'; update twheel.service set paused = true")
    s.app.rows("commit")
    equal(jobs(s), 1)


@test("who sees a service that is gone does not submit to it")
def _(s):
    s.app.rows("begin isolation level repeatable read; select * from twheel.job_callback_service")
    s.owner.rows(DELETE)
    equal(s.app.state(SUBMIT), "40001")
    s.app.rows("rollback")
    equal(jobs(s), 0)


@test("who does not see a job does not delete its service")
def _(s):
    s.node.rows("begin isolation level repeatable read; select * from twheel.job")
    s.app.rows(SUBMIT)
    equal(s.node.state(DELETE), "0A000")
    s.node.rows("rollback")
    equal(services(s), ["h"])


@test("a dead job whose service is gone is not requeued, and stays")
def _(s):
    s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state, payload)"
                 " values (1000001, now(), %d, 3, 4, 'x')" % s.service("h"))
    s.owner.rows(DELETE)
    equal(s.app.state("select twheel.requeue(1000001)"), "P0002")
    equal((jobs(s), s.owner.value("select count(*) from twheel.backlog where state = 4")), (0, "1"))


def state_of(session):
    try:
        session.answer()
    except Exception as error:
        return error.state
    return None
