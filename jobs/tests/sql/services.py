# SPDX-License-Identifier: GPL-2.0
"""What services may be; and one that is deleted leaves no job behind."""

from client import Error
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


@test("who deletes a service does not wait for long for who runs a schedule of it")
def _(s):
    s.owner.rows("select twheel.schedule('s', 'h', every => '1 hour')")
    s.app.rows("begin; select twheel.run_schedule('s'), twheel.unschedule('s')")
    equal(s.node.state("select twheel.remove_service('h')"), "55P03")
    s.app.rows("rollback; select twheel.unschedule('s')")
    equal(s.node.value("select twheel.remove_service('h')"), "t")


@test("who submits to a service does not wait while all jobs are gone through to delete it")
def _(s):
    other = s.more()
    s.owner.rows("alter function twheel.remove_service set lock_timeout = 0")
    other.rows("begin; lock table twheel.job in access exclusive mode")
    s.node.send("select twheel.remove_service('h')")
    s.blocked(s.node)
    equal(s.owner.state("select from twheel.service where service = 'h' for key share nowait"), None)
    other.rows("rollback")
    s.node.answer()
    s.owner.rows("alter function twheel.remove_service set lock_timeout = '50ms'")
    equal(services(s), [])


@test("a job that is submitted after all jobs were gone through keeps its service")
def _(s):
    other = s.more()
    s.owner.rows("alter function twheel.remove_service set lock_timeout = 0")
    other.rows("begin; lock table twheel.job in access exclusive mode")
    s.node.send("select twheel.remove_service('h')")
    s.blocked(s.node)
    s.owner.rows("begin; select from twheel.service where service = 'h' for key share")
    other.rows("rollback")
    s.until(lambda: s.postgres.value("select wait_event = 'transactionid' from pg_stat_activity"
                                     " where pid = %d" % s.node.pid) == "t")
    s.owner.rows(SUBMIT + "; commit")
    equal(state_of(s.node), "2BP01")
    s.owner.rows("alter function twheel.remove_service set lock_timeout = '50ms'")
    equal((jobs(s), services(s)), (1, ["h"]))


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


GOOD = {"service": "'new'", "kind": "'http'", "target": "'http://h:8/a?b=c'",
        "headers": """'{"X-A": "b \\u00e9", "!#$%&''*+-.^_`|~9": ""}'"""}
BAD = {
    "service": ["''", "'-x'", "repeat('x', 101)", "'a b'", "E'a\\n'", "null"],
    "kind": ["'brew'", "null"],
    "target": ["''"] + ["'%s'" % t for t in (
        "ftp://h/", "http://", "http:///x", "h", "http://h/ x", "http://h/\r\nX: y", "http://u:p@h/",
        "http://h/#f", "http://h/\u00e9", "http://h/\x7f", "HTTP://h/", "http://h/\"", "http://h?@#",
        "http://@h/", "http://:8/", "http://h/\\")] + ["'http://h/' || repeat('x', 2000)"],
    "headers": ["'[]'", "'1'", "'null'"] + ["'{\"%s\": %s}'" % h for h in (
        ("Host", '"h"'), ("content-length", '"3"'), ("Transfer-Encoding", '"chunked"'),
        ("TWHEEL-fence", '"1"'), ("Idempotency-Key", '"x"'), ("Connection", '"x"'), ("Te", '"x"'),
        ("X A", '"b"'), ("", '"b"'), ("X-A:", '"b"'), ("X-\u00e9", '"b"'), ("x" * 101, '"b"'),
        ("X-A", '"b\\r\\nX-B: c"'), ("X-A", '"b\\nc"'), ("X-A", '"\\u007f"'), ("X-A", "1"),
        ("X-A", "null"), ("X-A", '["b"]'), ("X\\n", '"b"'), ("X-A", '"%s"' % ("b" * 4001)))]
    + ["(select jsonb_object_agg('X-' || i, '') from generate_series(1, 33) i)"],
    "timeout_ms": ["0", "3600001"], "accept_ms": ["0", "2000000001"],
    "max_attempts": ["0", "32001"], "backoff_ms": ["0", "86400001"],
    "backoff_max_ms": ["0", "86400001"], "concurrency": ["0", "100001"],
    "rate_per_s": ["0", "-1", "1000001", "'NaN'"], "delivery": ["'exactly_once'"],
}


@test("a service that cannot be is refused by one sentence, which begins with what is wrong")
def _(s):
    insert = "insert into twheel.service (%s) values (%s)"
    s.node.rows(insert % (", ".join(GOOD), ", ".join(GOOD.values())))
    s.node.rows("delete from twheel.service where service = 'new'")
    for column, values in BAD.items():
        for value in values:
            row = dict(GOOD, **{column: value})
            try:
                s.node.rows(insert % (", ".join(row), ", ".join(row.values())))
                got = None
            except Error as error:
                got = error.state, error.message.split()[0], "\n" in error.message
            equal((column, value, got), (column, value, ("22023", column, False)))
    equal(services(s), ["h"])


@test("a message goes to an exchange by a routing key, or to a queue, and nowhere else")
def _(s):
    insert = "insert into twheel.service (service, kind, target) values ('new', 'amqp', %s)"
    for target in ("'/queue'", "'a-b_c.d:e/k.#.\u00e9 x'", "'ex/'", "'a/b/c'",
                   "repeat('e', 127) || '/' || repeat('k', 255)"):
        equal((target, s.node.state(insert % target)), (target, None))
        s.node.rows("delete from twheel.service where service = 'new'")
    for target in ("''", "'/'", "'queue'", "'a b/k'", "'http://h/'", "E'e/k\\n'", "'\u00e9/k'",
                   "repeat('e', 128) || '/k'", "'e/' || repeat('k', 256)",
                   "'/' || repeat('\u00e9', 128)"):
        equal((target, s.node.state(insert % target)), (target, "22023"))


@test("a service is not changed to one that cannot be")
def _(s):
    for change in ("kind = 'queue'", "target = ''", "headers = '{\"Host\": \"x\"}'",
                   "timeout_ms = 0"):
        equal((change, s.node.state("update twheel.service set %s where service = 'h'" % change)),
              (change, "22023"))
    equal(s.node.state("update twheel.service set target = 'http://x' where service = 'q'"), "22023")


@test("headers of services are shown without what they say")
def _(s):
    s.owner.rows("update twheel.service set headers = '{\"X-B\": \"secret\", \"X-A\": \"s\"}',"
                 " accept_ms = 7, notify = false where service = 'h'")
    equal(s.app.rows("select headers, accept_ms, notify from twheel.job_callback_service"
                     " where service = 'h'"), [("{X-A,X-B}", "7", "f")])


def state_of(session):
    try:
        session.answer()
    except Error as error:
        return error.state
    return None
