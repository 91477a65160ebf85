# SPDX-License-Identifier: GPL-2.0
"""Loading, and what each role may do."""

from client import Error
from harness import equal, test, true

APP = {"submit", "cancel", "cancel_tag", "move", "fate", "take", "extend", "finish",
       "finish_many", "fail", "requeue", "job_state", "queue_state", "end_state", "schedule", "unschedule",
       "pause_schedule", "run_schedule", "agent_is_here", "agent_is_gone"}
LOGINS = """create role owner login createrole; create role plain login;
            create role app login; create role node login; create role nobody login;
            create database twheel owner owner; create database plain owner plain"""


def prepare(s):
    session = s.more("postgres", "postgres")
    for command in LOGINS.split(";"):
        session.rows(command)


def no_roles(s):
    prepare(s)
    try:
        s.load("plain", "plain")
    except Error as error:
        equal(error.state, "42501")
        true("there is no role twheel_node" in error.message)
        equal(s.more("plain", "plain").value("select to_regnamespace('twheel')"), None)
        return
    raise AssertionError("it was loaded")


def creates_roles(s):
    s.load("twheel")
    s.more("postgres").rows("grant twheel_app to app; grant twheel_node to node")


def has_roles(s):
    s.load("plain", "plain")


first = [
    ("it is not loaded by one who may not create the roles, if they are missing", no_roles),
    ("it is loaded by who owns the database and may create roles", creates_roles),
    ("it is loaded by one who may not create roles, if they are there", has_roles),
]


@test("an application may call its functions, and no other")
def _(s):
    may = s.owner.column("select proname from pg_proc where pronamespace = 'twheel'::regnamespace"
                         " and has_function_privilege('app', oid, 'execute')")
    equal(set(may), APP)


@test("an application may do nothing with tables and sequences but read views")
def _(s):
    equal(s.owner.rows(
        "select relname, p from pg_class, unnest(array['select', 'insert', 'update', 'delete',"
        " 'truncate', 'references', 'trigger']) p"
        " where relnamespace = 'twheel'::regnamespace and relkind in ('r', 'p', 'v')"
        " and not (relkind = 'v' and p = 'select') and has_table_privilege('app', oid, p)"), [])
    equal(s.owner.rows("select c from pg_sequences, format('%I.%I', schemaname, sequencename) c"
                       " where schemaname = 'twheel' and"
                       " has_sequence_privilege('app', c, 'usage, select, update')"), [])


@test("an application that reads a table is denied it")
def _(s):
    equal(s.app.state("select * from twheel.job"), "42501")


@test("an application reads the views")
def _(s):
    for view in ("job_callback_service", "job_delay_task", "job_delay_task_execlog",
                 "job_delay_task_backlog", "job_schedule"):
        s.app.rows("select * from twheel." + view)


@test("who is no member of a role may call nothing")
def _(s):
    equal(s.more("nobody").state("select twheel.submit('h')"), "42501")
    equal(s.owner.rows("select proname from pg_proc where pronamespace = 'twheel'::regnamespace"
                       " and has_function_privilege('nobody', oid, 'execute')"), [])


@test("a node may do what a node does")
def _(s):
    h = s.service("h")
    for sql in (
            "insert into twheel.node (node, name, schema_min, schema_max)"
            " values (gen_random_uuid(), 'a', 1, 1)",
            "update twheel.node set beat = beat + 1",
            "update twheel.shard set owner = (select node from twheel.node),"
            " fence = fence + 1 where shard in (select shard from twheel.shard for update"
            " skip locked)",
            "update twheel.shard set owner = null",
            "delete from twheel.node",
            "select * from twheel.cluster",
            "update twheel.service set target = 'http://x' where service = 'h'",
            "insert into twheel.service (service, kind) values ('new', 'queue')",
            "delete from twheel.service where service = 'new'",
            "select * from twheel.insert_jobs(array[1::smallint], array[%d], array[now()],"
            " array['k'], null, null, null, array[''::bytea])" % h,
            "select twheel.lookup(%d, 'k')" % h,
            "select twheel.announce(1::smallint, 1, now(), 1, 0, null, 1)",
            "update twheel.job set state = 1",
            "with d as (delete from twheel.job returning *) insert into twheel.queue"
            " (job, due, idem, service, payload) select id, at, idem, service, payload from d",
            "delete from twheel.queue",
            "delete from twheel.seen",
            "insert into twheel.execlog (job, late_us, service, attempt, outcome)"
            " values (1, 1, 1, 1, 0)",
            "insert into twheel.backlog (job, due, service, attempt, state)"
            " values (1, now(), 1, 1, 3)",
            "select twheel.partitions(30)",
            "select twheel.cancel(1)"):
        equal((sql, s.node.state(sql)), (sql, None))


@test("a node may not drop, alter, truncate or create")
def _(s):
    for sql in ("drop table twheel.job", "drop table twheel.execlog_other",
                "alter table twheel.job add x integer", "truncate twheel.job",
                "create table twheel.x ()", "drop function twheel.owe",
                "create function twheel.x() returns void language sql as ''",
                "create or replace function twheel.owe() returns timestamptz language sql as ''",
                "drop schema twheel cascade", "drop index twheel.job_due",
                "update twheel.cluster set schema = 2", "delete from twheel.shard",
                "insert into twheel.shard (shard) values (64)",
                "alter sequence twheel.job_id restart"):
        equal((sql, s.node.state(sql)), (sql, "42501"))


@test("each function with the rights of its owner has a search path of its own")
def _(s):
    equal(s.owner.rows(
        "select proname from pg_proc where pronamespace = 'twheel'::regnamespace and prosecdef"
        " and 'search_path=twheel, pg_temp' <> all(coalesce(proconfig, '{}'))"), [])


@test("a function does not look into temporary tables of who calls it")
def _(s):
    s.app.rows("create temp table service (id integer, service text);"
               "insert into service values (77, 'h')")
    job = s.app.value("select twheel.submit('h')")
    equal(int(s.owner.value("select service from twheel.job where id = " + job)), s.service("h"))
