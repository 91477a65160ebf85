# SPDX-License-Identifier: GPL-2.0
"""A keyed submit that is repeated makes no second job."""

import random
import threading

from harness import equal, test, true

SUBMIT = "select twheel.submit('h', key => '%s')"


def jobs(s):
    return s.owner.column("select id from twheel.job order by id")


@test("a keyed submit that is repeated makes no second job")
def _(s):
    job = s.app.value(SUBMIT % "k")
    equal(s.app.value(SUBMIT % "k"), job)
    equal(jobs(s), [job])


@test("a keyed submit that is repeated in one transaction makes no second job")
def _(s):
    s.app.rows("begin")
    job = s.app.value(SUBMIT % "k")
    equal(s.app.value(SUBMIT % "k"), job)
    s.app.rows("commit")
    equal(jobs(s), [job])


@test("keys of two services are two")
def _(s):
    one = s.app.value(SUBMIT % "k")
    two = s.app.value("select twheel.submit('other', key => 'k')")
    equal(jobs(s), [one, two])


@test("other keys are others")
def _(s):
    one = s.app.value(SUBMIT % "k")
    two = s.app.value(SUBMIT % "K")
    equal(jobs(s), [one, two])


@test("a key is known when its job has run")
def _(s):
    job = s.app.value(SUBMIT % "k")
    s.owner.rows("delete from twheel.job")
    equal(s.app.value(SUBMIT % "k"), job)
    equal(jobs(s), [])


@test("a key is known when its job was cancelled")
def _(s):
    job = s.app.value("select twheel.submit('h', now() + interval '1 h', key => 'k')")
    s.app.rows("select twheel.cancel(%s)" % job)
    equal(s.app.value(SUBMIT % "k"), job)
    equal(jobs(s), [])


@test("a key is kept for 24 hours after its job was due")
def _(s):
    s.app.value("select twheel.submit('h', '2100-01-01Z', key => 'k')")
    equal(s.owner.column("select until = '2100-01-02Z' from twheel.seen"), ["t"])


@test("a key of a job of the past is kept for 24 hours from now")
def _(s):
    before = s.owner.value("select clock_timestamp()")
    s.app.value("select twheel.submit('h', '2001-01-01Z', key => 'k')")
    equal(s.owner.column("select until between '%s'::timestamptz + interval '24 h' and"
                         " clock_timestamp() + interval '24 h' from twheel.seen" % before), ["t"])


@test("a key may be had again when its time is over and its job is gone")
def _(s):
    old = s.app.value(SUBMIT % "k")
    s.owner.rows("delete from twheel.job; update twheel.seen set until = clock_timestamp()")
    new = s.app.value(SUBMIT % "k")
    true(new != old)
    equal(jobs(s), [new])
    equal(s.owner.rows("select job, until > clock_timestamp() + interval '23 h'"
                       " from twheel.seen"), [(new, "t")])


@test("a key is known as long as its job waits, though its time is over")
def _(s):
    job = s.app.value(SUBMIT % "k")
    s.owner.rows("update twheel.seen set until = clock_timestamp() - interval '9 days'")
    equal(s.app.value(SUBMIT % "k"), job)
    equal(jobs(s), [job])


@test("a key twice in one call makes one job")
def _(s):
    h = s.service("h")
    rows = s.node.rows(
        "select n, job from twheel.insert_jobs(array[1, 2, 3]::smallint[], array[%d, %d, %d],"
        " array[now(), now(), now()], array['k', 'l', 'k'], null, null, null,"
        " array['a', 'b', 'c']::bytea[]) order by n" % (h, h, h))
    equal([row[1] is None for row in rows], [False, False, True])
    equal(s.node.value("select twheel.lookup(%d, 'k')" % h), rows[0][1])
    equal(jobs(s), [rows[0][1], rows[1][1]])


@test("in one call what is new is inserted, and what was seen is told")
def _(s):
    h = s.service("h")
    old = s.app.value(SUBMIT % "k")
    rows = s.node.rows(
        "select n, job from twheel.insert_jobs(array[1, 2, 3]::smallint[], array[%d, %d, %d],"
        " array[now(), now(), now()], array['k', 'l', null], null, null, null,"
        " array['a', 'b', 'c']::bytea[]) order by n" % (h, h, h))
    equal(rows[0], ("1", None))
    equal(jobs(s), [old, rows[1][1], rows[2][1]])


@test("lookup() finds what a key of a service stands for, and nothing else")
def _(s):
    s.app.value(SUBMIT % "a")
    job = s.app.value(SUBMIT % "k")
    h = s.service("h")
    equal(s.node.value("select twheel.lookup(%d, 'k')" % h), job)
    for call in ("%d, 'x'" % h, "%d, 'k'" % s.service("other"), "null, 'k'", "%d, null" % h):
        equal(s.node.value("select twheel.lookup(%s)" % call), None)


@test("a submit waits for who has its key, and gets the job of that")
def _(s):
    other = s.more("app")
    other.rows("begin")
    job = other.value(SUBMIT % "k")
    s.app.send(SUBMIT % "k")
    s.blocked(s.app)
    other.rows("commit")
    equal(s.app.answer(), [(job,)])
    equal(jobs(s), [job])


@test("a submit waits for who has its key, and makes a job if that is rolled back")
def _(s):
    other = s.more("app")
    other.rows("begin")
    job = other.value(SUBMIT % "k")
    s.app.send(SUBMIT % "k")
    s.blocked(s.app)
    other.rows("rollback")
    mine = s.app.answer()[0][0]
    true(mine != job)
    equal(jobs(s), [mine])


@test("of two that have a key again whose time is over one makes a job")
def _(s):
    s.app.value(SUBMIT % "k")
    s.owner.rows("delete from twheel.job; update twheel.seen set until = clock_timestamp()")
    other = s.more("app")
    other.rows("begin")
    job = other.value(SUBMIT % "k")
    s.app.send(SUBMIT % "k")
    s.blocked(s.app)
    other.rows("commit")
    equal(s.app.answer(), [(job,)])
    equal(jobs(s), [job])


@test("a key that is forgotten meanwhile makes a job")
def _(s):
    s.app.value(SUBMIT % "k")
    s.owner.rows("delete from twheel.job; update twheel.seen set until = clock_timestamp()")
    s.node.rows("begin; delete from twheel.seen")
    s.app.send(SUBMIT % "k")
    s.blocked(s.app)
    s.node.rows("commit")
    job = s.app.answer()[0][0]
    equal(jobs(s), [job])
    equal(s.owner.column("select job from twheel.seen"), [job])


@test("who submits the same keys in other orders never waits in a circle")
def _(s):
    h = s.service("h")
    sessions = [s.more("node") for _ in range(8)]
    problems = []
    rounds, nr = 25, 40
    barrier = threading.Barrier(len(sessions))

    def client(session, order):
        for i in range(rounds):
            names = ["'k%d-%d'" % (i, k) for k in range(nr)]
            order.shuffle(names)
            barrier.wait()
            try:
                session.rows(
                    "select * from twheel.insert_jobs(array_fill(1::smallint, array[%d]),"
                    " array_fill(%d, array[%d]), array_fill(now(), array[%d]), array[%s],"
                    " null, null, null, array_fill(''::bytea, array[%d]))"
                    % (nr, h, nr, nr, ", ".join(names), nr))
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=client, args=(session, random.Random(i)))
               for i, session in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(problems, [])
    equal(s.owner.rows("select count(*), count(distinct key) from twheel.job"),
          [(str(rounds * nr),) * 2])
