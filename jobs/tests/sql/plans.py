# SPDX-License-Identifier: GPL-2.0
"""No function goes through a whole table, though its plan was made when there was nothing."""

import json
import os
import re
import subprocess

from harness import HERE, equal, test, true

MOST = 200		# rows of a table that a call may read
OFTEN = 7		# after five times a plan is kept
CALLS = (
    "select twheel.cancel(3)", "select twheel.cancel(5000)", "select twheel.move(5001, now())",
    "select twheel.cancel_tag('6', 10)", "select twheel.move(4, now())", "select twheel.fate(5)",
    "select twheel.cancel_tag('5', 10)", "select twheel.take('q', 3)", "select twheel.take('q')",
    "select twheel.extend(7, 1, '1 min')", "select twheel.finish(8, 1)",
    "select twheel.finish_many('{11, 12, 13}', '{1, 1, 1}')",
    "select twheel.fail(9, 1)", "select twheel.requeue(10)",
    "select twheel.submit('h', now(), key => 'k1')", "select twheel.submit('h', now(), key => 'x')")

DEAD = 20000
FIRST, NR = 10000000, 20
LOOKED_AT = 5		# pages that a look reads for each schedule that it finds
NOW = "'2020-01-01Z'::timestamptz"
READ = 60		# pages of tables and indexes that a batch may read for each of its jobs


def source(name):
    with open(os.path.join(HERE, "..", "..", name), encoding="utf-8") as file:
        return file.read()


def statement(file, name):
    """That of twheeld, as it may stand behind "prepare p"."""
    text = re.sub("(?m)^#include.*", "", source("db.h") + source("node.h") + source(file))
    text = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-x", "c", "-"], input=text,
                          check=True, capture_output=True, encoding="utf-8").stdout
    body = re.search(r"db_stmt %s = \{(.*?)\};" % name, text, re.S).group(1)
    sql = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', body)[1:]).replace(r"\\", "\\")
    types = re.findall(r"PG_([A-Z0-9]+(?:_A\b)?)", body)
    return "(%s) as %s" % (", ".join(t.lower().replace("_a", "[]") for t in types), sql)


def pages_read(s, sql):
    """By a query that is undone, and how many rows it has."""
    s.owner.rows("begin")
    plan = json.loads("".join(s.owner.column("explain (analyze, buffers, timing off, format json) "
                                             + sql)))[0]["Plan"]
    s.owner.rows("rollback")
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan["Actual Rows"]


def leave_dead(s):
    """As many of them as a pinned snapshot may need, which it is for who calls to end."""
    s.owner.rows("truncate twheel.job")
    pin = s.more()
    pin.rows("begin isolation level repeatable read; select from twheel.service")
    s.owner.rows("insert into twheel.job (due, at, service, shard) select now(), now(), %d, i %% 64"
                 " from generate_series(1, %d) i" % (s.service("q"), DEAD))
    s.owner.rows("delete from twheel.job; analyze twheel.job")
    equal(s.owner.value("select reltuples = 0 and relpages > 0 from pg_class"
                        " where oid = 'twheel.job'::regclass"), "t")
    return pin


def empty(s):
    s.owner.rows("truncate twheel.job, twheel.queue, twheel.seen, twheel.backlog")
    for table in ("job", "queue", "seen", "backlog"):
        s.owner.rows("vacuum analyze twheel." + table)


def fill(s):
    q, h = s.service("q"), s.service("h")
    s.owner.rows("insert into twheel.job (id, due, at, service, shard, tag, order_key, key)"
                 " select i, now(), now(), %d, i %% 64, i %% 400, i %% 100, 'k' || i"
                 " from generate_series(1, 4000) i" % h)
    s.owner.rows("insert into twheel.seen (service, key, job, until) select service, key, id,"
                 " now() - interval '1 day' from twheel.job")
    s.owner.rows("insert into twheel.queue (job, due, idem, service, payload, order_key, tag)"
                 " select i, now(), gen_random_uuid(), %d, '', nullif(i %% 2000, 5), i %% 400"
                 " from generate_series(2000, 6000) i" % q)
    s.owner.rows("insert into twheel.backlog (job, due, service, attempt, state, payload)"
                 " select i, now(), %d, 1, 4, '' from generate_series(1, 4000) i" % q)


@test("no function goes through a table, whatever that was when its plan was made")
def _(s):
    s.owner.rows("alter sequence twheel.job_id restart 1000000")
    empty(s)
    for call in CALLS:
        for _ in range(OFTEN):
            s.owner.rows(call)
    s.owner.rows("delete from twheel.job; delete from twheel.seen")
    fill(s)
    for call in CALLS:
        s.owner.rows("select pg_stat_force_next_flush()")
        s.owner.rows("begin; " + call)
        read = s.owner.rows("select relname, seq_tup_read, idx_tup_fetch"
                            " from pg_stat_xact_user_tables where schemaname = 'twheel'"
                            " and seq_tup_read + coalesce(idx_tup_fetch, 0) > %d" % MOST)
        s.owner.rows("rollback")
        equal((call, read), (call, []))


@test("jobs that have failed are found by an index of theirs")
def _(s):
    fill(s)
    s.owner.rows("update twheel.backlog set state = 3 where job > 10; analyze twheel.backlog")
    table = s.owner.value("select relname from twheel.backlog b, pg_class c where c.oid = b.tableoid")
    for also in "", " and service = 'q'", " and service = 'q' and at <= now() order by at":
        plan = "".join(s.owner.column("explain select * from twheel.job_delay_task_backlog"
                                      " where state = 'failed'" + also))
        equal((also, "_service_at_idx" in plan, "Seq Scan on " + table in plan), (also, True, False))


@test("who brings back parked jobs does not go through those of services that are paused")
def _(s):
    s.owner.rows("truncate twheel.job; set enable_seqscan = off; prepare p "
                 + statement("service.c", "unpark_page"))
    call = "execute p('{1,2}', 10, 0, 0)"
    for _ in range(OFTEN):
        s.owner.rows(call)
    s.on_queue("paused = true")
    s.owner.rows("insert into twheel.job (due, at, service, shard) select 'infinity', now(), v, i %% 4"
                 " from generate_series(1, 4000) i, unnest(array[%d, case when i <= 20 then %d end]) v"
                 " where v is not null" % (s.service("q"), s.service("h")))
    s.owner.rows("select pg_stat_force_next_flush()")
    s.owner.rows("begin")
    equal(len(s.owner.rows(call)), 10)
    read = s.owner.value("select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
                         " where relname = 'job'")
    s.owner.rows("rollback")
    true(int(read) < MOST)


@test("who knows a row of the queue by its number finds it by that, whatever the queue holds")
def _(s):
    empty(s)
    s.owner.rows("set enable_seqscan = off; set plan_cache_mode = force_generic_plan;"
                 "prepare p(bigint) as select from twheel.queue where seq = $1 and taken = 1")
    true("queue_pkey" in "".join(s.owner.column("explain execute p(1)")))


@test("schedules to be looked at are found where they are in the index, on time before late")
def _(s):
    s.owner.rows("insert into twheel.schedule (schedule, service, every_ms) select 's' || i, %d, 1000"
                 " from generate_series(1, 3000) i" % s.service("q"))
    s.owner.rows("update twheel.schedule s set shard = 1, next = case i %% 3 when 0 then '-infinity'"
                 " when 1 then %s - i * interval '1 ms' else %s - i * interval '1 hour' end"
                 " from (select id, row_number() over (order by id) as i from twheel.schedule) x"
                 " where x.id = s.id" % (NOW, NOW))
    s.owner.rows("vacuum analyze twheel.schedule")
    s.owner.rows("set enable_seqscan = off; set enable_nestloop = off; set jit = off;"
                 " deallocate all; prepare p " + statement("plan.c", "look"))
    call = "execute p('{1,2}', %s + interval '2 s', '{}', 512, %s - interval '5 s')" % (NOW, NOW)
    for mode in "force_generic_plan", "force_custom_plan":
        s.owner.rows("set plan_cache_mode = " + mode)
        read, rows = pages_read(s, call)
        equal((mode, rows, read, read < LOOKED_AT * rows), (mode, 3 * 64 + 1, read, True))
    on_time, late = (s.owner.column(
        "select next from twheel.schedule where next > '-infinity' and next %s - interval '5 s'"
        " order by next %s" % which) for which in ((">= " + NOW, ""), ("< " + NOW, "desc")))
    equal([r[4] for r in s.owner.rows(call)[:-1]], ["-infinity"] * 64 + on_time[:64] + late[:64])


@test("who knows jobs by their numbers does not go through what is dead, if there seems to be nothing")
def _(s):
    pin = leave_dead(s)
    node = "00000000-0000-0000-0000-000000000001"
    s.owner.rows("insert into twheel.job (id, due, at, service, shard, state, attempt, order_key)"
                 " select %d + i, '2020-01-01Z', now(), %d, 1, i / %d, i / %d, nullif(i %% 4, 0)"
                 " from generate_series(0, %d) i" % (FIRST, s.service("q"), NR, NR, 2 * NR - 1))
    s.owner.rows("update twheel.shard set owner = '%s', fence = 1; set jit = off" % node)
    for setting in re.findall(r"-c (\w+=\w+)", re.search("DB_BY_INDEX.*", source("db.h")).group()):
        s.owner.rows("set " + setting)
    ids = ["'{%s}'" % ",".join(str(FIRST + i) for i in range(n, n + NR)) for n in (0, NR)]
    due, shard, zero, service, one, text = ("array_fill(%s, array[%d])" % (value, NR) for value in (
        "'2020-01-01Z'::timestamptz", "1::int2", 0, s.service("q"), 1, "''::text"))
    zeros = "array_fill(0::int8, array[%d])" % NR
    batch = "'%s', '{1}', '{1}', %s" % (node, ", ".join((ids[0], due, shard, zero, service)))
    results = "'%s', %s" % (node, ", ".join((ids[1], one, one, zero, zeros, zeros, zeros, due, text)))
    statements = [("fire.c", name, batch, 1 + NR) for name in (
        "hand", "hand_unlocked", "mark", "mark_unlocked", "park")]
    statements.append(("finish.c", "record", results, NR))
    for file, name, values, nr_rows in statements:
        s.owner.rows("deallocate all; prepare p " + statement(file, name))
        for mode in "force_generic_plan", "force_custom_plan":
            s.owner.rows("set plan_cache_mode = " + mode)
            read, rows = pages_read(s, "execute p(%s)" % values)
            equal((name, mode, rows, read, read < READ * NR), (name, mode, nr_rows, read, True))
    for call in "cancel(%d)", "move(%d, now())", "fate(%d)":
        for _ in range(2):	# the first reads of the catalog as well
            read, _ = pages_read(s, "select twheel." + call % FIRST)
        equal((call, read, read < READ), (call, read, True))
    pin.rows("rollback")
