# SPDX-License-Identifier: GPL-2.0
"""Jobs of applications."""

from harness import equal, test, true

# In each the time that owe() gives is later than the one that is asked for.
WRITERS = {
    "submit": "select twheel.submit('h', '2000-01-01Z')",
    "submit without a time": "select twheel.submit('h')",
    "move": "select twheel.move(%s, '2000-01-01Z')",
    "requeue": "select twheel.requeue(%s)",
}


def nothing(s):
    equal(s.owner.rows("select 1 from twheel.job union all select 1 from twheel.seen"), [])


@test("a job is due when it was told to")
def _(s):
    job = s.app.value("select twheel.submit('h', '2100-05-06 07:08:09.123456Z')")
    true(s.owner.value("select due = '2100-05-06 07:08:09.123456Z' and at = due"
                       " from twheel.job where id = " + job))


@test("a job has what it was given")
def _(s):
    s.app.rows("select twheel.submit('other', '2100-01-01Z', '\\x0061', 'key', 'order', 'tag', 5)")
    equal(s.owner.rows("select service, payload, key, order_key, tag, slack_ms, attempt, state"
                       " from twheel.job"),
          [(str(s.service("other")), "\\x0061", "key", "order", "tag", "5", "0", "0")])


@test("a job without a time is due now")
def _(s):
    before = s.owner.value("select clock_timestamp()")
    job = s.app.value("select twheel.submit('h')")
    true(s.owner.value("select due between '%s' and clock_timestamp() and at <= due and at >= '%s'"
                       " from twheel.job where id = %s" % (before, before, job)))


@test("a job of the past is due now, and keeps its time for people")
def _(s):
    before = s.owner.value("select clock_timestamp()")
    job = s.app.value("select twheel.submit('h', '2001-01-01Z')")
    true(s.owner.value("select at = '2001-01-01Z' and due >= '%s'"
                       " from twheel.job where id = %s" % (before, job)))


@test("owe() takes the time when the transaction has a number")
def _(s):
    equal(s.owner.rows("select pg_current_xact_id_if_assigned() is null, twheel.owe() is null,"
                       " pg_current_xact_id_if_assigned() is null"), [("t", "f", "f")])
    true(s.owner.value("select twheel.owe() > clock from (select clock_timestamp() as clock"
                       " offset 0) c"))


@test("whatever writes when a job is due has that from owe() if it is later")
def _(s):
    q = s.service("q")
    moved = s.app.value("select twheel.submit('h', '2001-01-01Z')")
    s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state, payload)"
                 " values (123456, now(), %d, 1, 4, '')" % q)
    owe = "create or replace function twheel.owe() returns timestamptz language %s"
    body = s.owner.value("select prosrc from pg_proc where proname = 'owe'")
    s.owner.rows(owe % "sql volatile as $$ select '2100-01-01Z'::timestamptz $$")
    try:
        session = s.more("app")
        jobs = {moved}
        for name, sql in WRITERS.items():
            job = session.value(sql % {"move": moved, "requeue": "123456"}[name]
                                if "%s" in sql else sql)
            jobs.add(moved if name == "move" else job)
        equal(s.owner.column("select due = '2100-01-01Z' from twheel.job"), ["t"] * len(jobs))
    finally:
        s.owner.rows(owe % "sql volatile as $$%s$$" % body)


@test("a job at no time of this era is refused")
def _(s):
    for at in ("infinity", "-infinity", "10000-01-01Z", "1969-12-31Z", "294276-12-31Z"):
        equal((at, s.app.state("select twheel.submit('h', '%s', '', 'k')" % at)), (at, "22008"))
    nothing(s)


@test("a job of a service that is not there is refused")
def _(s):
    equal(s.app.state("select twheel.submit('nothing')"), "P0002")
    equal(s.app.state("select twheel.submit(null)"), "P0002")
    nothing(s)


@test("a payload of nothing is one")
def _(s):
    s.app.value("select twheel.submit('h', null, '')")
    equal(s.owner.column("select payload = '' from twheel.job"), ["t"])


@test("a payload of 1 MiB is taken, one more byte is refused")
def _(s):
    payload = "convert_to(repeat('x', %d), 'UTF8')"
    s.app.value("select twheel.submit('h', null, %s)" % (payload % 1048576))
    equal(s.app.state("select twheel.submit('h', null, %s)" % (payload % 1048577)), "54000")
    equal(s.owner.column("select length(payload) from twheel.job"), ["1048576"])


@test("no payload is refused")
def _(s):
    equal(s.app.state("select twheel.submit('h', null, null)"), "54000")
    nothing(s)


@test("keys and tags of nothing, or longer than 500 characters, are refused")
def _(s):
    for name in ("key", "order_key", "tag"):
        for value in ("''", "repeat('x', 501)"):
            equal((name, s.app.state("select twheel.submit('h', %s => %s)" % (name, value))),
                  (name, "22001"))
    nothing(s)


@test("keys and tags of 500 long characters are taken")
def _(s):
    # Not to be compressed, for an index.
    value = ("(select string_agg(chr(65536 + (random() * 60000)::integer), '')"
             " from generate_series(1, 500))")
    s.app.value("select twheel.submit('h', key => %s, order_key => %s, tag => %s)"
                % (value, value, value))


@test("slack is from nothing to an hour, and none if it is null")
def _(s):
    equal(s.app.state("select twheel.submit('h', slack_ms => -1)"), "22003")
    equal(s.app.state("select twheel.submit('h', slack_ms => 3600001)"), "22003")
    nothing(s)
    s.app.value("select twheel.submit('h', slack_ms => null)")
    s.app.value("select twheel.submit('h', slack_ms => 3600000)")
    equal(s.owner.column("select slack_ms from twheel.job order by id"), ["0", "3600000"])


@test("a submit is announced when it is committed")
def _(s):
    s.node.rows("listen twheel_job")
    s.app.rows("begin")
    job = s.app.value("select twheel.submit('h', '2100-01-01Z', slack_ms => null)")
    s.node.rows("select 1")
    equal(s.node.notifications, [])
    s.app.rows("commit")
    s.node.rows("select 1")
    shard = s.owner.value("select shard from twheel.job")
    equal(s.node.notifications,
          [("twheel_job", "%s %s 4102444800000000 %d 0 0 0" % (shard, job, s.service("h")))])


@test("a submit is not announced if that is not wanted")
def _(s):
    s.node.rows("listen twheel_job")
    s.app.value("select twheel.submit('h', announce => false)")
    s.node.rows("select 1")
    equal(s.node.notifications, [])


@test("what never will be due is not announced")
def _(s):
    s.node.rows("listen twheel_job; select twheel.announce(1::smallint, 2, 'infinity', 3, 4, null, 5)")
    equal(s.node.notifications, [])


@test("jobs are spread over all shards")
def _(s):
    s.app.rows("select twheel.submit('h', announce => false) from generate_series(1, 2000)")
    equal(s.owner.rows("select min(shard), max(shard), count(distinct shard) from twheel.job"),
          [("0", "63", "64")])


@test("jobs with the same order key of a service have one shard, whatever is asked for")
def _(s):
    h = s.service("h")
    s.node.rows("select * from twheel.insert_jobs(array[1, 2, 3]::smallint[],"
                " array[%d, %d, %d], array[now(), now(), now()], null,"
                " array['a', 'a', 'a'], null, null, array['', '', '']::bytea[])" % (h, h, h))
    s.app.rows("select twheel.submit('h', order_key => 'a') from generate_series(1, 5)")
    equal(s.owner.rows("select count(distinct shard), count(*) from twheel.job"), [("1", "8")])


@test("each of many jobs that are inserted is told with its number in the call")
def _(s):
    h = s.service("h")
    rows = s.node.rows(
        "select n, job, shard, due from twheel.insert_jobs(array[5, 6, 7]::smallint[],"
        " array[%d, %d, %d], array['2100-01-03Z', '2100-01-02Z', '2100-01-01Z']::timestamptz[],"
        " null, null, null, null, array['c', 'b', 'a']::bytea[])" % (h, h, h))
    for n, job, shard, due in rows:
        n = int(n)
        equal(int(shard), 4 + n)
        true(s.owner.value("select due = '%s' and due = '2100-01-0%dZ' and shard = %s"
                           " and payload = '%s' from twheel.job where id = %s"
                           % (due, 4 - n, shard, "cba"[n - 1], job)))
    equal(sorted(row[0] for row in rows), ["1", "2", "3"])


@test("nulls among jobs that are inserted are an error, and none is inserted")
def _(s):
    good = {"shards": "array[1, 2]::smallint[]", "services": "array[1, 2]",
            "ats": "array[now(), now()]", "keys": "array['k', null]", "order_keys": "null",
            "tags": "null", "slacks": "null", "payloads": "array['', '']::bytea[]"}
    bad = {"shards": "array[1, null]::smallint[]", "services": "array[null, 2]",
           "ats": "array[null, now()]", "payloads": "array['']::bytea[]"}
    good["services"] = "array[%d, %d]" % (s.service("h"), s.service("q"))
    call = "select * from twheel.insert_jobs(%s)"
    for name, value in bad.items():
        for value in (value, "null"):
            args = ", ".join("%s => %s" % item for item in dict(good, **{name: value}).items())
            expected = "P0002" if value.startswith("array[null, 2") else "23502"
            equal((name, s.node.state(call % args)), (name, expected))
    nothing(s)
    equal(s.node.rows(call % ", ".join(["null"] * 8)), [])
