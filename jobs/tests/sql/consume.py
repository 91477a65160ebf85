# SPDX-License-Identifier: GPL-2.0
"""Consumers of a queue."""

from harness import equal, test, true


def take(session, args="'q'"):
    return [int(seq) for seq in session.column("select seq from twheel.take(%s)" % args)]


def rows(s):
    return s.owner.rows("select * from twheel.queue order by seq")


def due_again(s):
    s.owner.rows("update twheel.queue set visible = '-infinity'")


@test("what is taken comes in order, as many as were asked for")
def _(s):
    seqs = s.in_queue([None] * 5)
    equal(sorted(take(s.app, "'q', 2")), seqs[:2])
    equal(take(s.app), seqs[2:3])
    equal(sorted(take(s.app, "'q', 100")), seqs[3:])
    equal(take(s.app, "'q', 100"), [])


@test("who takes gets all of a job")
def _(s):
    s.in_queue(["o"])
    s.owner.rows("update twheel.queue set tag = 't', payload = '\\x00ff'")
    expected = s.owner.rows("select seq, job, due, idem, taken + 1, order_key, tag, payload"
                            " from twheel.queue")
    equal(s.app.rows("select * from twheel.take('q')"), expected)


@test("what is taken of a service is of that service")
def _(s):
    s.in_queue([None] * 2)
    other = s.in_queue([None], "r")
    equal(take(s.app, "'r', 10"), other)


@test("what was taken is not seen for so long as was asked for")
def _(s):
    s.in_queue([None])
    before = s.owner.value("select clock_timestamp()")
    take(s.app, "'q', 1, '1 hour'")
    true(s.owner.value("select visible between '%s'::timestamptz + interval '1 hour'"
                       " and clock_timestamp() + interval '1 hour' from twheel.queue" % before))


@test("what was taken is had again when its time is over, and counted")
def _(s):
    seqs = s.in_queue([None])
    take(s.app, "'q', 1, '0'")
    equal(s.app.rows("select seq, taken from twheel.take('q')"), [(str(seqs[0]), "2")])


@test("what is taken as often as the service has attempts, and never finished, is dead then")
def _(s):
    seqs = s.in_queue([None] * 2)
    s.owner.rows("update twheel.queue q set taken = max_attempts from twheel.service v"
                 " where v.id = q.service and seq = %d" % seqs[0])
    equal(take(s.app, "'q', 2"), seqs[1:])
    equal(s.owner.column("select state from twheel.backlog"), ["4"])


@test("two consumers have different jobs, and do not wait for each other")
def _(s):
    seqs = s.in_queue([None] * 2)
    other = s.more("app")
    other.rows("begin")
    equal(take(other), seqs[:1])
    s.app.rows("set lock_timeout = '10s'")
    equal(take(s.app, "'q', 10"), seqs[1:])
    other.rows("rollback")
    equal(take(s.app, "'q', 10"), seqs[:1])


@test("what is below the floor is passed over")
def _(s):
    seqs = s.in_queue([None] * 3)
    equal(take(s.app, "'q', 10, '1 min', %d" % seqs[1]), seqs[1:])
    equal(take(s.app, "'q', 10"), seqs[:1])


@test("nulls take one, from the beginning")
def _(s):
    seqs = s.in_queue([None] * 2)
    equal(take(s.app, "'q', null, '1 min', null"), seqs[:1])


@test("who would take for no time gets an error, and nothing is taken")
def _(s):
    s.in_queue([None])
    before = rows(s)
    equal(s.app.state("select twheel.take('q', 1, null)"), "23502")
    equal(s.app.state("select twheel.take('q', -1)"), "2201W")
    equal(rows(s), before)


@test("who would take from a service that is not there gets an error")
def _(s):
    equal(s.app.state("select twheel.take('nothing')"), "P0002")
    equal(s.app.state("select twheel.take(null)"), "P0002")


@test("of an order key one is taken at a time, in order")
def _(s):
    seqs = s.in_queue(["a", "a", "b", None, "a", "b"])
    equal(sorted(take(s.app, "'q', 10")), [seqs[0], seqs[2], seqs[3]])
    equal(take(s.app, "'q', 10"), [])
    s.app.rows("select twheel.finish(%d, 1)" % seqs[0])
    equal(take(s.app, "'q', 10"), [seqs[1]])
    s.app.rows("select twheel.finish(%d, 1)" % seqs[1])
    equal(take(s.app, "'q', 10"), [seqs[4]])


@test("an order key waits for the one that somebody is taking")
def _(s):
    seqs = s.in_queue(["a", "a"])
    other = s.more("app")
    other.rows("begin")
    equal(take(other), seqs[:1])
    equal(take(s.app, "'q', 10"), [])
    other.rows("commit")
    equal(take(s.app, "'q', 10"), [])


@test("an order key waits for the one that somebody is finishing")
def _(s):
    seqs = s.in_queue(["a", "a"])
    take(s.app)
    s.app.rows("begin; select twheel.finish(%d, 1)" % seqs[0])
    equal(take(s.more("app"), "'q', 10"), [])
    s.app.rows("commit")
    equal(take(s.app, "'q', 10"), seqs[1:])


@test("an order key waits for one that is to be tried again")
def _(s):
    seqs = s.in_queue(["a", "a"])
    take(s.app)
    s.app.rows("select twheel.fail(%d, 1, 'no', '1 hour')" % seqs[0])
    equal(take(s.app, "'q', 10"), [])
    due_again(s)
    equal(take(s.app, "'q', 10"), seqs[:1])


@test("an order key goes on behind one that is dead")
def _(s):
    seqs = s.in_queue(["a", "a"])
    s.on_queue("max_attempts = 1")
    take(s.app)
    equal(s.app.value("select twheel.fail(%d, 1)" % seqs[0]), "dead")
    equal(take(s.app, "'q', 10"), seqs[1:])


@test("an order key waits for one below the floor")
def _(s):
    seqs = s.in_queue(["a", "a", "b"])
    equal(take(s.app, "'q', 10, '1 min', %d" % seqs[1]), [seqs[2]])


@test("an order key of one service does not wait for that of another")
def _(s):
    s.in_queue(["a"])
    other = s.in_queue(["a"], "r")
    equal(take(s.app, "'r'"), other)


@test("who has taken may have it for longer")
def _(s):
    seqs = s.in_queue([None] * 2)
    take(s.app, "'q', 2, '1 min'")
    true(s.app.value("select twheel.extend(%d, 1, '1 hour')" % seqs[0]))
    equal(s.owner.column("select visible > clock_timestamp() + interval '10 min'"
                         " from twheel.queue order by seq"), ["t", "f"])


@test("who has lost what was taken may not have it for longer")
def _(s):
    seqs = s.in_queue([None])
    take(s.app, "'q', 1, '0'")
    take(s.app)
    before = rows(s)
    equal(s.app.value("select twheel.extend(%d, 1, '1 hour')" % seqs[0]), "f")
    equal(rows(s), before)


@test("what is finished is gone from the queue, and in the backlog")
def _(s):
    seqs = s.in_queue(["a", "b"])
    take(s.app, "'q', 2")
    expected = s.owner.rows("select job, due, service, taken, 3, order_key, tag"
                            " from twheel.queue where seq = %d" % seqs[0])
    true(s.app.value("select twheel.finish(%d, 1)" % seqs[0]))
    equal(s.owner.rows("select job, due, service, attempt, state, order_key, tag"
                       " from twheel.backlog"), expected)
    equal(s.owner.column("select seq from twheel.queue"), [str(seqs[1])])


@test("who has lost what was taken does not finish it")
def _(s):
    seqs = s.in_queue([None])
    take(s.app, "'q', 1, '0'")
    take(s.app)
    before = rows(s)
    equal(s.app.value("select twheel.finish(%d, 1)" % seqs[0]), "f")
    equal(rows(s), before)
    equal(s.owner.rows("select * from twheel.backlog"), [])


@test("of two that finish the same one does")
def _(s):
    seqs = s.in_queue([None])
    take(s.app)
    other = s.more("app")
    other.rows("begin; select twheel.finish(%d, 1)" % seqs[0])
    s.app.send("select twheel.finish(%d, 1)" % seqs[0])
    s.blocked(s.app)
    other.rows("commit")
    equal(s.app.answer(), [("f",)])
    equal(s.owner.value("select count(*) from twheel.backlog"), "1")


def end(session, seqs, taken):
    return session.value("select twheel.finish_many('{%s}', '{%s}')"
                         % (", ".join(map(str, seqs)), ", ".join(map(str, taken))))


@test("many that are finished at once are gone from the queue, and in the backlog")
def _(s):
    seqs = s.in_queue(["a", "b", None, "c"])
    take(s.app, "'q', 4")
    expected = s.owner.rows("select job, due, service, taken, 3, order_key, tag"
                            " from twheel.queue where seq <> %d order by job" % seqs[1])
    equal(end(s.app, [seqs[3], seqs[0], seqs[2]], [1, 1, 1]), "{}")
    equal(s.owner.rows("select job, due, service, attempt, state, order_key, tag"
                       " from twheel.backlog order by job"), expected)
    equal(s.owner.column("select seq from twheel.queue"), [str(seqs[1])])


@test("of many that are finished at once those come back that somebody else has")
def _(s):
    seqs = s.in_queue([None] * 3)
    take(s.app, "'q', 2, '0'")
    take(s.app, "'q', 3")
    equal(end(s.app, [seqs[1], seqs[2], seqs[0]], [1, 1, 2]), "{%d}" % seqs[1])
    equal(s.owner.column("select seq from twheel.queue"), [str(seqs[1])])
    equal(s.owner.value("select count(*) from twheel.backlog"), "2")


@test("one that was given back is not finished among many")
def _(s):
    seqs = s.in_queue([None] * 2)
    take(s.app, "'q', 2")
    s.app.rows("select twheel.fail(%d, 1, 'no', '1 hour')" % seqs[0])
    equal(end(s.app, seqs, [1, 1]), "{%d}" % seqs[0])
    equal(s.owner.column("select seq from twheel.queue"), [str(seqs[0])])


@test("what is named twice among many is finished once")
def _(s):
    seqs = s.in_queue([None])
    take(s.app)
    equal(end(s.app, seqs * 2, [1, 1]), "{}")
    equal(s.owner.value("select count(*) from twheel.backlog"), "1")


@test("a row that is named with an attempt that is over as well is among those that are lost")
def _(s):
    seqs = s.in_queue([None])
    take(s.app)
    equal(end(s.app, seqs * 2, [1, 99]), "{%d}" % seqs[0])


@test("nothing is finished by arrays that are null, empty or of another length")
def _(s):
    seqs = s.in_queue([None] * 2)
    take(s.app, "'q', 2")
    before = rows(s)
    equal(s.app.value("select twheel.finish_many(null, null)"), "{}")
    equal(s.app.value("select twheel.finish_many(null, '{1}')"), "{}")
    equal(end(s.app, [], []), "{}")
    equal(end(s.app, seqs, []), "{%d,%d}" % tuple(seqs))
    equal(end(s.app, [seqs[0], "null"], ["null", 1]), "{%d,NULL}" % seqs[0])
    equal(rows(s), before)
    equal(end(s.app, seqs, [1]), "{%d}" % seqs[1])


@test("what fails is had again after the time that was asked for")
def _(s):
    seqs = s.in_queue([None] * 2)
    take(s.app, "'q', 2, '1 min'")
    equal(s.app.value("select twheel.fail(%d, 1, 'no', '1 hour')" % seqs[0]), "again")
    equal(s.owner.column("select visible > clock_timestamp() + interval '10 min'"
                         " from twheel.queue order by seq"), ["t", "f"])


@test("what fails is had again within the backoff of its service, doubled each time")
def _(s):
    seqs = s.in_queue([None] * 200)
    s.on_queue("backoff_ms = 1000000, backoff_max_ms = 5000000")
    for n, most in ((1, 1000), (2, 2000), (3, 4000), (4, 5000), (15, 5000)):
        s.owner.rows("update twheel.queue set taken = %d, began = now(), late_us = 0" % n)
        before = s.owner.value("select clock_timestamp()")
        s.app.rows("select twheel.fail(seq, %d) from generate_series(%d, %d) seq"
                   % (n, seqs[0], seqs[-1]))
        # Of 200 at random some are in the last tenth, and some in the first.
        span = s.owner.rows(
            "select min(visible) >= '{0}', min(visible) < '{0}'::timestamptz + {1} * .1 + slow,"
            " max(visible) > '{0}'::timestamptz + {1} * .9, max(visible) <= clock + {1}"
            " from twheel.queue, (select clock_timestamp() as clock, clock_timestamp() - '{0}'"
            " as slow offset 0) c group by slow, clock"
            .format(before, "interval '%d s'" % most))
        equal((n, span), (n, [("t",) * 4]))


@test("what fails for the last time is dead, and keeps all that it needs to be requeued")
def _(s):
    seqs = s.in_queue(["a", None])
    s.on_queue("max_attempts = 2")
    take(s.app, "'q', 1, '0'")
    equal(s.app.value("select twheel.fail(%d, 1, 'no', '0')" % seqs[0]), "again")
    take(s.app)
    expected = s.owner.rows("select job, due, service, 2, 4, order_key, tag, repeat('x', 1000),"
                            " payload from twheel.queue where seq = %d" % seqs[0])
    equal(s.app.value("select twheel.fail(%d, 2, repeat('x', 1001))" % seqs[0]), "dead")
    equal(s.owner.rows("select job, due, service, attempt, state, order_key, tag, message, payload"
                       " from twheel.backlog"), expected)
    equal(s.owner.column("select seq from twheel.queue"), [str(seqs[1])])


@test("who has lost what was taken does not fail it")
def _(s):
    seqs = s.in_queue([None])
    for attempts in (1, 20):
        s.on_queue("max_attempts = %d" % attempts)
        s.owner.rows("update twheel.queue set taken = 2")
        before = rows(s)
        equal(s.app.value("select twheel.fail(%d, 1)" % seqs[0]), "lost")
        equal(rows(s), before)
    equal(s.owner.rows("select * from twheel.backlog"), [])


@test("what fails while somebody takes it is lost")
def _(s):
    seqs = s.in_queue([None])
    take(s.app, "'q', 1, '0'")
    other = s.more("app")
    other.rows("begin")
    take(other)
    for attempts in (20, 1):
        s.on_queue("max_attempts = %d" % attempts)
        s.app.send("select twheel.fail(%d, 1)" % seqs[0])
        s.blocked(s.app)
        other.rows("commit")
        equal(s.app.answer(), [("lost",)])
        s.owner.rows("update twheel.queue set taken = 1, visible = '-infinity'")
        other.rows("begin")
        take(other)
    equal(s.owner.rows("select * from twheel.backlog"), [])


@test("nulls extend, finish and fail nothing")
def _(s):
    seqs = s.in_queue([None])
    take(s.app)
    before = rows(s)
    for args in ("null, 1", "%d, null" % seqs[0]):
        equal(s.app.value("select twheel.extend(%s, '1 min')" % args), "f")
        equal(s.app.value("select twheel.finish(%s)" % args), "f")
        equal(s.app.value("select twheel.fail(%s)" % args), "lost")
    equal(s.app.state("select twheel.extend(%d, 1, null)" % seqs[0]), "23502")
    equal(rows(s), before)


def dead(s, job, state=4, payload="'\\x6162'"):
    s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state, key, order_key,"
                 " tag, payload) values (%d, now(), %d, 3, %d, 'k', 'o', 't', %s)"
                 % (job, s.service("q"), state, payload))


@test("a dead job is submitted again as a new one")
def _(s):
    dead(s, 1000001)
    dead(s, 1000002)
    s.node.rows("listen twheel_job")
    job = s.app.value("select twheel.requeue(1000001)")
    equal(s.owner.rows("select id, service, attempt, state, key, order_key, tag, payload,"
                       " due <= clock_timestamp() from twheel.job"),
          [(job, str(s.service("q")), "0", "0", None, "o", "t", "\\x6162", "t")])
    equal(s.app.rows("select job, state, requeued from twheel.job_delay_task_backlog order by job"),
          [("1000001", "requeued", job), ("1000002", "failed", None)])
    equal(s.owner.column("select job from twheel.backlog where payload is not null"), ["1000002"])
    s.node.rows("select 1")
    equal([n[1].split()[1] for n in s.node.notifications], [job])


@test("a dead job is requeued once")
def _(s):
    dead(s, 1000001)
    other = s.more("app")
    other.rows("begin; select twheel.requeue(1000001)")
    s.app.send("select twheel.requeue(1000001)")
    s.blocked(s.app)
    other.rows("commit")
    equal(s.app.answer(), [(None,)])
    equal(s.app.value("select twheel.requeue(1000001)"), None)
    equal(s.owner.value("select count(*) from twheel.job"), "1")


@test("what is not dead is not requeued")
def _(s):
    dead(s, 1000001, 3)
    dead(s, 1000002, 5)
    equal(s.app.column("select twheel.requeue(j) from unnest(array[1000001, 1000002, -1, null]) j"),
          [None] * 4)
    equal(s.owner.rows("select * from twheel.job"), [])
    equal(s.owner.value("select count(*) from twheel.backlog"), "2")


@test("a dead job without its payload is not requeued, and stays")
def _(s):
    dead(s, 1000001, 4, "null")
    equal(s.app.state("select twheel.requeue(1000001)"), "23502")
    equal(s.owner.value("select count(*) from twheel.backlog"), "1")
