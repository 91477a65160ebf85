# SPDX-License-Identifier: GPL-2.0
"""No function goes through a whole table, though its plan was made when there was nothing."""

import os
import re

from harness import HERE, equal, test, true

MOST = 200		# rows of a table that a call may read
OFTEN = 7		# after five times a plan is kept
CALLS = (
    "select twheel.cancel(3)", "select twheel.cancel(5000)", "select twheel.move(5001, now())",
    "select twheel.cancel_tag('6', 10)", "select twheel.move(4, now())", "select twheel.fate(5)",
    "select twheel.cancel_tag('5', 10)", "select twheel.take('q', 3)", "select twheel.take('q')",
    "select twheel.extend(7, 1, '1 min')", "select twheel.finish(8, 1)",
    "select twheel.fail(9, 1)", "select twheel.requeue(10)",
    "select twheel.submit('h', now(), key => 'k1')", "select twheel.submit('h', now(), key => 'x')")


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
    with open(os.path.join(HERE, "..", "..", "service.c"), encoding="utf-8") as file:
        text = re.search(r"unpark_page = \{(.*?)\n\};", file.read(), re.S).group(1)
    sql = "".join(re.findall(r'"(.*?)"(?:,?\n)', text[text.index(".sql"):])).replace("\\", "")
    s.owner.rows("truncate twheel.job; set enable_seqscan = off; prepare p(int2[], int, int, bigint)"
                 " as " + sql)
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
