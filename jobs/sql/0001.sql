-- SPDX-License-Identifier: GPL-2.0
--
-- What a cluster of twheeld keeps: who is alive and owns what, services, jobs, and the
-- functions of applications and consumers.
--
-- What must hold, and who sees to it:
--
--   A row of job is owed. Nothing that is finished stays there.
--
--   A job is due no earlier than its transaction had its number. The owner of a shard looks
--   for new jobs from the time of its last look on, and for those of a transaction that was
--   under way then from the look before (../horizon.c); so whoever writes "due" has a
--   transaction number first, by owe(), and takes the clock's time if that is later.
--
--   Keys outlive their jobs for a day, in seen.
--
--   A job has a service. Who makes jobs has the row of the service locked, so that it is not
--   deleted meanwhile, and who deletes it looks for jobs when nobody can make one any more. A
--   foreign key would be the same, and costs 9 us of CPU a job in a batch, where to insert it takes
--   13 and these locks less than one.
--
-- Times are the clock of this database. The functions are what others may call: as the owner
-- of the schema, in their own transactions. A plan that was made while a table was empty may
-- outlive that by long: so some do not leave the choice of an index to what the tables hold.

create schema twheel;

-- Roles of which the logins are members: of nodes, and of applications and consumers.
do $$
declare
	name text;
begin
	foreach name in array array['twheel_node', 'twheel_app'] loop
		continue when exists (select from pg_roles where rolname = name);
		begin
			execute format('create role %I', name);
		exception
		when duplicate_object or unique_violation then
			null;	-- another database of this server is migrated at the same time
		when insufficient_privilege then
			raise insufficient_privilege using
				message = format('there is no role %s, and %s may not create it',
						 name, current_user),
				hint = 'As a superuser: create role twheel_node; create role twheel_app';
		end;
	end loop;
end $$;

create table twheel.cluster (
	one	boolean primary key default true check (one),
	id	uuid not null default gen_random_uuid(),
	schema	integer not null,	-- number of the last migration
	secret	bytea not null default decode(replace(
			gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
);
insert into twheel.cluster (schema) values (1);

-- A process of twheeld, from its start to its end. See ../lease.c.
create table twheel.node (
	node		uuid primary key,
	beat		bigint not null default 0,
	name		text not null,
	url		text not null default '',
	schema_min	integer not null,
	schema_max	integer not null,
	drain		boolean not null default false,		-- it is asked to
	started		timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table twheel.shard (
	shard	smallint primary key,
	owner	uuid,
	fence	bigint not null default 0
) with (fillfactor = 50);
insert into twheel.shard (shard) select generate_series(0, 63);

create sequence twheel.service_version;

create table twheel.service (
	id		integer generated always as identity primary key,
	service		text not null unique,
	kind		text not null,			-- http, queue, amqp
	target		text not null default '',	-- where calls or messages go
	headers		jsonb not null default '{}',	-- of calls, which may be secrets
	timeout_ms	integer not null default 30000,
	accept_ms	integer not null default 3600000,
	max_attempts	integer not null default 20,
	backoff_ms	integer not null default 1000,
	backoff_max_ms	integer not null default 3600000,
	concurrency	integer not null default 100,
	rate_per_s	double precision,		-- null: any
	delivery	text not null default 'at_least_once',
	notify		boolean not null default true,	-- of a queue, when it gets rows
	paused		boolean not null default false,
	version		bigint not null default nextval('twheel.service_version')
);

-- Of calls, besides those that a call has of its own or that say how it is sent.
create function twheel.headers_are_good(headers jsonb) returns boolean
language sql immutable as $$
	select case when jsonb_typeof(headers) <> 'object' then false else (
		select count(*) <= 32 and coalesce(bool_and(
			name collate "C" ~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$'
			and lower(name) not in ('host', 'content-length', 'transfer-encoding',
				'connection', 'expect', 'te', 'upgrade', 'trailer', 'keep-alive',
				'proxy-connection', 'proxy-authorization', 'idempotency-key')
			and not starts_with(lower(name), 'twheel-')
			and jsonb_typeof(value) = 'string' and octet_length(value #>> '{}') <= 4000
			and (value #>> '{}') !~ '[\x01-\x1f\x7f]'), true)
		from jsonb_each(headers) h(name, value)) end
$$;

-- An URL that says where to, in ASCII that may stand in a request line.
create function twheel.target_is_good(target text) returns boolean language sql immutable as $$
	select length(target) <= 2000 and target collate "C" ~ '^[!-~]*$'
		and target ~ '^https?://[^/?#:@][^/?#@]*([/?][^#]*)?$'
		and target !~ '["<>\\^`{|}]'
$$;

-- EXCHANGE/ROUTING-KEY. Without an exchange it is a queue's name, which then there has to be.
create function twheel.amqp_target_is_good(target text) returns boolean language sql immutable as $$
	select target collate "C" ~ '^[A-Za-z0-9_.:-]{0,127}/[^\x01-\x1f\x7f]*$' and target <> '/'
		and target !~ '^[a-z]+://'	-- an URL is a mistake
		and octet_length(split_part(target, '/', 1)) + 256 >= octet_length(target)
$$;

-- What a service may be, whoever writes it. The message begins with what is wrong, which is told
-- as the column as well.
create function twheel.check_service() returns trigger language plpgsql as $$
declare
	wrong text[];
begin
	if (new.service ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$') is not true then
		wrong := array['service', '1 to 100 letters, digits, and ._- behind the first'];
	elsif (new.kind in ('http', 'queue', 'amqp')) is not true then
		wrong := array['kind', 'http, queue or amqp'];
	elsif old.kind = 'queue' and new.kind <> 'queue' and exists (
			select from twheel.schedule c where c.service = new.id and c.broadcast) then
		wrong := array['kind', 'queue as long as it has schedules with broadcast'];
	elsif new.kind = 'queue' and new.target <> '' then
		raise invalid_parameter_value
			using message = 'target must not be set for a queue', column = 'target';
	elsif new.kind = 'http' and not twheel.target_is_good(new.target) then
		wrong := array['target', 'an URL of http or https without user or fragment'];
	elsif new.kind = 'amqp' and not twheel.amqp_target_is_good(new.target) then
		wrong := array['target', 'EXCHANGE/ROUTING-KEY, of letters, digits and _.:- up to 127, '
			'and of up to 255 bytes'];
	elsif not twheel.headers_are_good(new.headers) then
		wrong := array['headers', 'a JSON object of strings, 32 at most, of up to 4000 bytes '
			'without control characters, and have none that twheeld sends itself'];
	elsif new.delivery not in ('at_least_once', 'at_most_once') then
		wrong := array['delivery', 'at_least_once or at_most_once'];
	elsif not (new.rate_per_s > 0 and new.rate_per_s <= 1e6) then
		wrong := array['rate_per_s', 'above 0 and up to 1000000, or null for any'];
	else
		select array[c.name, format('%s to %s', c.least, c.most)] into wrong
		from (values ('timeout_ms', new.timeout_ms, 1, 3600000),
			     ('accept_ms', new.accept_ms, 1, 2000000000),
			     ('max_attempts', new.max_attempts, 1, 32000),
			     ('backoff_ms', new.backoff_ms, 1, 86400000),
			     ('backoff_max_ms', new.backoff_max_ms, 1, 86400000),
			     ('concurrency', new.concurrency, 1, 100000)
		) c(name, value, least, most)
		where c.value not between c.least and c.most limit 1;
	end if;
	if wrong is not null then
		raise invalid_parameter_value
			using message = format('%s must be %s', wrong[1], wrong[2]), column = wrong[1];
	end if;
	return new;
end $$;
create trigger service_can_be before insert or update on twheel.service
	for each row execute function twheel.check_service();

create sequence twheel.job_id;

-- Columns are in the order that leaves no gaps.
create table twheel.job (
	id		bigint primary key default nextval('twheel.job_id'),
	due		timestamptz not null,	-- when its owner has to look at it
	at		timestamptz not null,	-- when it is to be done, for people
	idem		uuid not null default gen_random_uuid(),
	service		integer not null,
	slack_ms	integer not null default 0,
	attempt		integer not null default 0,
	shard		smallint not null,
	state		smallint not null default 0,	-- 0 delay, 1 running, 2 accepted
	key		text,
	order_key	text,
	tag		text,
	schedule	integer,		-- one of its instants, and not moved from there
	flags		smallint,		-- bits, see plan(); null is none
	payload		bytea not null default ''
) with (fillfactor = 90);
-- "id + 0" here and below: a plan that was made when statistics said that the table is empty, while
-- it was full of dead rows, would go through all of an index that has the id itself, for an id.
create index job_due on twheel.job (shard, due, (id + 0));
create index job_parked on twheel.job (service, (id + 0)) where due = 'infinity';
create index job_order on twheel.job (order_key, service) where order_key is not null;
create index job_tag on twheel.job (tag, id) where tag is not null;
create index job_of_schedule on twheel.job (schedule, at) where schedule is not null;

create table twheel.seen (
	service	integer not null,
	key	text not null,
	job	bigint not null,
	until	timestamptz not null,
	primary key (service, key)
);

create table twheel.queue (
	seq		bigint generated always as identity primary key,
	job		bigint not null,
	due		timestamptz not null,	-- job.at
	visible		timestamptz not null default '-infinity',	-- others have it from then on
	began		timestamptz,		-- when it was taken; null: nobody has it
	late_us		bigint,			-- at that, since it was to be had
	idem		uuid not null,
	service		integer not null,
	taken		integer not null default 0,	-- how often, and the attempts before
	agent		text not null default '',
	key		text,
	order_key	text,
	tag		text,
	payload		bytea not null
) with (fillfactor = 80);
create unique index queue_job on twheel.queue (job, agent);
create index queue_service on twheel.queue (service, seq)
	where service is not null;	-- always; but not for who knows "seq" alone
create index queue_tag on twheel.queue (tag, job) where tag is not null;
create index queue_order on twheel.queue (order_key, service, seq) where order_key is not null;
create index queue_agent on twheel.queue (service, agent) where agent <> '';

-- Consumers of broadcasts, each with a name of its own.
create table twheel.agent (
	service	integer not null,
	agent	text not null,
	seen	timestamptz not null,	-- it has come for something, about then
	primary key (service, agent)
) with (fillfactor = 50);

-- One row for each attempt, when it is over, and for each hand-over; but a call that ends its job,
-- and the attempt in which a consumer finishes one, are in backlog. With a row here as well, to take
-- and finish a job in batches of 100 took 68 to 102 us and 760 bytes of WAL, and without it 63 to
-- 89 us and 593 to 645 bytes.
create table twheel.execlog (
	at		timestamptz not null default clock_timestamp(),
	job		bigint not null,
	late_us		bigint not null,	-- when it began, since it was due
	took_us		bigint,
	node		uuid,
	service		integer not null,
	attempt		integer not null,
	status		integer,		-- of HTTP; null if there was no answer
	outcome		smallint not null,	-- 1 again, 2 failed, 3 accepted, 4 handed over
	message		text
) partition by range (at);
create index execlog_at on twheel.execlog using brin (at) with (pages_per_range = 8);
-- Who asks for a job waits for some ms; a tree would cost each call more than its row does.
create index execlog_job on twheel.execlog using brin (job int8_minmax_multi_ops)
	with (pages_per_range = 8);

-- One row for each job that is over. What failed keeps its payload, to be requeued.
create table twheel.backlog (
	at		timestamptz not null default clock_timestamp(),
	job		bigint not null,
	due		timestamptz not null,	-- job.at
	service		integer not null,
	attempt		integer not null,
	state		smallint not null,	-- 3 finished, 4 failed, 5 cancelled, 6 requeued, 7 skipped
	requeued	bigint,			-- as which job
	late_us		bigint,			-- of the last attempt, if that has no row in execlog:
	took_us		bigint,			-- else null
	status		integer,
	node		uuid,
	key		text,
	order_key	text,
	tag		text,
	agent		text,			-- that had it of a broadcast
	message		text,
	payload		bytea
) partition by range (at);
create index backlog_job on twheel.backlog (job);
create index backlog_requeued on twheel.backlog (requeued) where requeued is not null;

-- States as people know them. Where they are asked for by name they have to be written as they
-- are in the index, which is what the planner goes by; it sees through these functions.
create function twheel.job_state(state smallint, due timestamptz) returns text
language sql volatile as $$
	select case state when 0 then case when due = 'infinity' then 'paused'
					   when due > clock_timestamp() then 'delay'
					   else 'ready' end
		when 1 then 'running' else 'accepted' end
$$;
create function twheel.queue_state(visible timestamptz, began timestamptz) returns text
language sql volatile as $$
	select case when visible <= clock_timestamp() then 'ready'
		    when began is null then 'delay' else 'running' end
$$;
create function twheel.end_state(state smallint) returns text language sql immutable as $$
	select case state when 3 then 'finished' when 4 then 'failed' when 5 then 'cancelled'
		when 6 then 'requeued' when 7 then 'skipped' end
$$;
create index backlog_failed on twheel.backlog (service, at)
	where twheel.end_state(state) = 'failed';

-- A clock that is set must not stop everything.
create table twheel.execlog_other partition of twheel.execlog default;
create table twheel.backlog_other partition of twheel.backlog default;

-- Makes the partitions of the next eight days, and drops the oldest of each log if all of it is
-- more than so many days ago: one in a call, so that a clock that was wrong for a moment does
-- not take everything with it. Who reads for long must not stop what is written: then it is
-- tried again the next time. A day of which rows were written before it had a partition stays
-- with the default one.
create function twheel.partitions(keep_days integer) returns void
language plpgsql security definer set search_path = twheel, pg_temp set timezone = 'UTC'
set lock_timeout = '50ms' as $$
declare
	oldest date := current_date - keep_days;
	log text;
	part text;
	day date;
begin
	if oldest is null or keep_days < 1 then
		raise invalid_parameter_value using message = 'logs must be kept for at least a day';
	end if;
	if not pg_try_advisory_xact_lock(hashtext('twheel.partitions')) then
		return;
	end if;
	foreach log in array array['execlog', 'backlog'] loop
		for day in select current_date + i from generate_series(0, 8) i loop
			part := log || to_char(day, '_YYYYMMDD');
			continue when to_regclass(part) is not null;
			begin
				execute format('create table %I partition of %I'
					       ' for values from (%L) to (%L)',
					       part, log, day::timestamptz, (day + 1)::timestamptz);
			exception
			when check_violation then
				null;
			when lock_not_available then
				exit;
			end;
		end loop;
		begin
			execute format('delete from %I where at < $1', log || '_other')
				using oldest::timestamptz;
			select c.relname into part
			from pg_inherits i join pg_class c on c.oid = i.inhrelid
			where i.inhparent = log::regclass and c.relname ~ '_[0-9]{8}$'
				and to_date(right(c.relname, 8), 'YYYYMMDD') < oldest
			order by c.relname limit 1;
			if found then
				execute format('drop table %I', part);
			end if;
		exception when lock_not_available then
			null;
		end;
	end loop;
end $$;
select twheel.partitions(30);

-- The clock, for whoever is to write "due": after the transaction has its number.
create function twheel.owe() returns timestamptz language sql volatile as $$
	select case when pg_current_xact_id() is not null then clock_timestamp() end
$$;

create function twheel.shard_of(service integer, order_key text) returns smallint
language sql immutable as $$
	select (hashtext(service || ' ' || order_key) & 63)::smallint
$$;

-- What jobs are owed to. It is not done in a snapshot of before, in which a job may be missing
-- that was made by who had the row locked, which it is by now. The setting is of remove_service(), which
-- has gone through the jobs up to that id already.
create function twheel.keep_service() returns trigger language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
	none_to bigint := coalesce(nullif(current_setting('twheel.none_to', true), ''), '0');
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise feature_not_supported
			using message = 'a service can only be deleted in a read committed transaction';
	end if;
	if exists (select from twheel.job j where j.service = old.id and j.id > none_to)
	   or exists (select from twheel.queue q where q.service = old.id) then
		raise dependent_objects_still_exist
			using message = format('service %s has jobs', old.service);
	elsif exists (select from twheel.schedule c where c.service = old.id) then
		raise dependent_objects_still_exist
			using message = format('service %s has schedules', old.service),
				column = 'schedule';
	end if;
	return old;
end $$;
create trigger service_has_jobs before delete on twheel.service
	for each row execute function twheel.keep_service();

-- Whether there was one. Fails if it has jobs, or if somebody has submitted to it in a
-- transaction that is open for longer than this waits. No index has the services of jobs; but who
-- submits does not wait until all jobs were gone through: the service is locked once, and let go,
-- for whoever had an id for a job of it to end. Who gets one later has a greater one; and what has a
-- lesser one is in one of the two tables from then on, until it is over.
create function twheel.remove_service(service text) returns boolean
language plpgsql set lock_timeout = '50ms' as $$
#variable_conflict use_variable
declare
	s integer;
	none_to bigint;
	nr integer;
begin
	begin
		select v.id into s from twheel.service v where v.service = remove_service.service
			for update;
		if not found then
			return false;
		end if;
		select case when i.is_called then i.last_value else 0 end into none_to
		from twheel.job_id i;
		raise exception using errcode = 'TW000';
	exception when sqlstate 'TW000' then
		null;	-- it is not locked any more
	end;
	if exists (select from twheel.queue q where q.service = s
		   union all select from twheel.job j where j.service = s) then
		raise dependent_objects_still_exist
			using message = format('service %s has jobs', service);
	end if;
	perform set_config('twheel.none_to', none_to::text, true);
	delete from twheel.service v where v.id = s;
	get diagnostics nr = row_count;
	perform set_config('twheel.none_to', '', true);
	return nr > 0;
end $$;

-- Jobs, an element of each array for one; shards are those that the caller would like. Where
-- "job" comes back null the key has been seen, before or in this call: lookup() tells whose it
-- is.
create function twheel.insert_jobs(shards smallint[], services integer[], ats timestamptz[],
	keys text[], order_keys text[], tags text[], slacks integer[], payloads bytea[])
returns table (n bigint, job bigint, shard smallint, due timestamptz)
language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
	clock timestamptz := twheel.owe();
	locked integer[] := '{}';
	s integer;
begin
	foreach s in array coalesce(services, '{}') loop
		continue when s = any(locked);
		perform from twheel.service v where v.id = s for key share;
		if not found then
			raise no_data_found using message = 'the service is gone';
		end if;
		locked := locked || s;
	end loop;
	return query
	with u as materialized (
		select u.*, nextval('twheel.job_id') as id
		from unnest(shards, services, ats, keys, order_keys, tags, slacks, payloads)
			with ordinality u(shard, service, at, key, order_key, tag, slack_ms, payload, n)
	), fresh as (
		insert into twheel.seen as s (service, key, job, until)
		select distinct on (u.service, u.key) u.service, u.key, u.id,
			greatest(u.at, clock) + interval '24 hours'
		from u where u.key is not null order by u.service, u.key, u.id
		on conflict (service, key) do update
			set job = excluded.job, until = excluded.until
			where s.until < clock	-- not "exists", which might hash all jobs
				and (select j.id from twheel.job j where j.id = s.job) is null
		returning s.job
	), done as (
		insert into twheel.job as j (id, due, at, service, slack_ms, shard, key, order_key, tag,
					     payload)
		select u.id, greatest(u.at, clock), u.at, u.service, coalesce(u.slack_ms, 0),
			case when u.order_key is null then u.shard
			     else twheel.shard_of(u.service, u.order_key) end,
			u.key, u.order_key, u.tag, u.payload
		from u where u.key is null or u.id in (select f.job from fresh f)
		returning j.id, j.shard, j.due
	)
	select u.n, d.id, d.shard, d.due from u left join done d on d.id = u.id;
end $$;

-- What a consumer that answered 202 has to show when it reports: it is told to the consumer
-- with the call, and to nobody else. The first is an expression to the planner, the second a query
-- for each row.
create function twheel.token(secret bytea, job bigint, attempt integer) returns text
language sql stable as $$
	select encode(sha256($1 || convert_to($2 || '/' || $3, 'UTF8')), 'hex')
$$;
create function twheel.token(job bigint, attempt integer) returns text language sql stable as $$
	select twheel.token(c.secret, $1, $2) from twheel.cluster c
$$;

-- What a key stands for. The statement before has waited for whoever had it.
create function twheel.lookup(service integer, key text) returns bigint
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
begin
	return (select s.job from twheel.seen s where s.service = $1 and s.key = $2);
end $$;

-- Tells owners of a job that they may not have seen.
create function twheel.announce(shard smallint, job bigint, due timestamptz, service integer,
				slack_ms integer, flags smallint, bytes integer)
returns void language plpgsql as $$
begin
	if due < 'infinity' then
		perform pg_notify('twheel_job', concat_ws(' ', shard, job,
			(extract(epoch from due) * 1000000)::bigint, service, slack_ms,
			coalesce(flags, 0), bytes));
	end if;
end $$;

create function twheel.service_id(service text) returns integer language plpgsql stable as $$
#variable_conflict use_column
declare
	found_id integer;
begin
	select s.id into found_id from twheel.service s where s.service = service_id.service;
	if not found then
		raise no_data_found using message = 'no service ' || quote_nullable($1);
	end if;
	return found_id;
end $$;

create function twheel.check_time(at timestamptz) returns void language plpgsql immutable as $$
begin
	if at is null or at not between '1970-01-01Z' and '9999-12-31Z' then
		raise datetime_field_overflow using message = 'the time of a job must be from 1970 to 9999';
	end if;
end $$;

-- Submits a job of an application, in its own transaction. The same key makes no second job
-- until a day after the first was due. With "announce" false, for callers that have to spare
-- locks or are behind a pooler, owners find the job when they next look.
create function twheel.submit(service text, at timestamptz default null,
	payload bytea default '', key text default null, order_key text default null,
	tag text default null, slack_ms integer default 0, announce boolean default true)
returns bigint language plpgsql security definer set search_path = twheel, pg_temp as $$
#variable_conflict use_variable
declare
	s integer := twheel.service_id(service);
	made record;
begin
	at := coalesce(at, clock_timestamp());
	slack_ms := coalesce(slack_ms, 0);
	perform twheel.check_time(at);
	if payload is null or length(payload) > 1048576 then
		raise exception 'a payload has at most 1 MiB' using errcode = 'program_limit_exceeded';
	end if;
	if least(length(key), length(order_key), length(tag)) < 1
	   or greatest(length(key), length(order_key), length(tag)) > 500 then
		raise exception 'keys and tags have 1 to 500 characters'
			using errcode = 'string_data_right_truncation';
	end if;
	if slack_ms not between 0 and 3600000 then
		raise exception 'slack must be at most an hour' using errcode = 'numeric_value_out_of_range';
	end if;
	select i.* into made from twheel.insert_jobs(
		array[floor(random() * 64)::smallint], array[s], array[at],
		array[key], array[order_key], array[tag], array[slack_ms], array[payload]) i;
	if made.job is null then
		return twheel.lookup(s, key);
	end if;
	if announce then
		perform twheel.announce(made.shard, made.job, made.due, s, slack_ms, null,
					octet_length(payload));
	end if;
	return made.job;
end $$;

-- Where a job is: 'waiting', 'running' (or with a consumer), 'gone', or 'unknown'. In the queue it
-- waits as long as nobody has it: whose consumer has not finished it in time nobody has.
create function twheel.fate(job bigint) returns text
language plpgsql stable security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_column
begin
	return coalesce(
		(select case j.state when 0 then 'waiting' else 'running' end
		 from twheel.job j where j.id = fate.job),
		(select case when bool_or(twheel.queue_state(q.visible, q.began) = 'running')
			     then 'running' else 'waiting' end
		 from twheel.queue q where q.job = fate.job having count(*) > 0),
		(select 'gone' from twheel.backlog b where b.job = fate.job limit 1),
		'unknown');
end $$;

-- Locks what there is of a job in the queue, so that it is not taken: 'waiting'. 'running' if a
-- consumer has it, or is at it in a transaction that is open, or if it is to be whole and is a
-- broadcast that is over for some agent: then nothing stays locked. Null: it is not there.
create function twheel.withdraw(job bigint, whole boolean default false) returns text
language plpgsql set lock_timeout = '50ms' set enable_seqscan = off as $$
#variable_conflict use_column
begin
	perform from twheel.queue q where q.job = withdraw.job order by q.agent for update;
	if not found then
		return null;
	end if;
	if exists (select from twheel.queue q where q.job = withdraw.job
			and twheel.queue_state(q.visible, q.began) = 'running')
	   or (whole and exists (select from twheel.backlog b
				 where b.job = withdraw.job and b.agent is not null)) then
		raise lock_not_available;
	end if;
	return 'waiting';
exception when lock_not_available then
	return 'running';
end $$;

-- 'cancelled': the job will not start, or not again. 'running', 'gone', 'unknown': nothing was
-- changed.
create function twheel.cancel(job bigint) returns text
language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_variable
declare
	fate text := 'waiting';
begin
	while fate = 'waiting' loop	-- again if it came back from running meanwhile
		with d as (delete from twheel.job j where j.id = job and j.state = 0 returning j.*)
		insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag)
		select d.id, d.at, d.service, d.attempt, 5, d.key, d.order_key, d.tag from d;
		if found then
			return 'cancelled';
		end if;
		fate := twheel.withdraw(job);
		if fate = 'waiting' then
			with d as (delete from twheel.queue q where q.job = cancel.job returning q.*)
			insert into twheel.backlog (job, due, service, attempt, state, key, order_key,
						    tag)
			select d.job, d.due, d.service, d.taken, 5, d.key, d.order_key, d.tag
			from d order by d.taken desc limit 1;
			return 'cancelled';
		end if;
		fate := coalesce(fate, twheel.fate(job));
	end loop;
	return fate;
end $$;

-- Cancels up to "most" jobs with a tag. If it returns as many, there may be more. It skips jobs
-- that somebody else is moving, cancelling, handing over or taking.
create function twheel.cancel_tag(tag text, most integer default 1000) returns integer
language plpgsql security definer set search_path = twheel, pg_temp
set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
#variable_conflict use_variable
declare
	nr integer;
	nr_queued integer;
begin
	with p as materialized (
		select j.id from twheel.job j where j.tag = tag and j.state = 0
		order by j.id limit coalesce(most, 1000) for update skip locked
	), d as (
		delete from twheel.job j where j.id = any(array(select p.id from p)) returning j.*
	)
	insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag)
	select d.id, d.at, d.service, d.attempt, 5, d.key, d.order_key, d.tag from d;
	get diagnostics nr = row_count;
	with p as materialized (
		select q.seq from twheel.queue q where q.tag = cancel_tag.tag
			and (q.began is null or q.visible <= clock_timestamp())
		order by q.job limit coalesce(most, 1000) - nr for update skip locked
	), d as (
		delete from twheel.queue q where q.seq = any(array(select p.seq from p)) returning q.*
	)
	insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag)
	select d.job, d.due, d.service, d.taken, 5, d.key, d.order_key, d.tag from d;
	get diagnostics nr_queued = row_count;
	return nr + nr_queued;
end $$;

-- 'moved', or as cancel(). A job in the queue leaves it, as it would hold up others of its order
-- key there. A job of a schedule no longer belongs to it.
create function twheel.move(job bigint, at timestamptz, announce boolean default true)
returns text language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_variable
declare
	clock timestamptz := twheel.owe();
	fate text := 'waiting';
	m record;
begin
	perform twheel.check_time(at);
	while fate = 'waiting' loop
		update twheel.job j set at = move.at, due = greatest(move.at, clock), schedule = null,
			flags = nullif(j.flags & 3, 0)
		where j.id = job and j.state = 0
		returning j.shard, j.id, j.due, j.service, j.slack_ms, j.key, j.flags,
			octet_length(j.payload) as bytes into m;
		exit when found;
		fate := twheel.withdraw(job, whole => true);
		if fate = 'waiting' then
			with d as (delete from twheel.queue q where q.job = move.job returning q.*)
			insert into twheel.job as j (id, due, at, idem, service, attempt, shard, key,
						     order_key, tag, flags, payload)
			select d.job, greatest(move.at, clock), move.at, d.idem, d.service, d.taken,
				case when d.order_key is null then floor(random() * 64)::smallint
				     else twheel.shard_of(d.service, d.order_key) end,
				d.key, d.order_key, d.tag, case when d.agent <> '' then 2 end,
				d.payload
			from d order by d.taken desc limit 1
			returning j.shard, j.id, j.due, j.service, j.slack_ms, j.key, j.flags,
				octet_length(j.payload) as bytes into m;
			exit;
		end if;
		fate := coalesce(fate, twheel.fate(job));
	end loop;
	if fate <> 'waiting' then
		return fate;
	end if;
	update twheel.seen s set until = m.due + interval '24 hours'
	where s.service = m.service and s.key = m.key;
	if announce then
		perform twheel.announce(m.shard, m.id, m.due, m.service, m.slack_ms, m.flags,
					m.bytes);
	end if;
	return 'moved';
end $$;

create function twheel.us_since(since timestamptz) returns bigint language sql volatile as $$
	select greatest(extract(epoch from clock_timestamp() - since) * 1000000, 0)::bigint
$$;

-- Agents come for what is theirs at least each 30 s, or say that they are there: broadcasts of
-- longer after that are not for them.
create function twheel.is_alive(seen timestamptz) returns boolean language sql volatile as $$
	select seen > clock_timestamp() - interval '30 seconds'
$$;

-- A row that is not so old is left alone: to write it each time costs more than to take. One of
-- the future was written before the clock was set.
create function twheel.see_agent(service integer, agent text) returns void language plpgsql as $$
#variable_conflict use_variable
declare
	clock timestamptz := clock_timestamp();
begin
	if length(agent) not between 1 and 100 then
		raise string_data_right_truncation using
			message = 'names of agents have 1 to 100 characters', column = 'agent';
	end if;
	perform from twheel.agent a where a.service = see_agent.service and a.agent = see_agent.agent
		and a.seen between clock - interval '5 seconds' and clock + interval '5 seconds';
	if not found then
		insert into twheel.agent as a (service, agent, seen) values (service, agent, clock)
		on conflict on constraint agent_pkey do update set seen = excluded.seen;
	end if;
end $$;

-- For an agent that is busy, or that starts: once this is committed it gets broadcasts.
create function twheel.agent_is_here(service text, agent text) returns void
language plpgsql security definer set search_path = twheel, pg_temp as $$
begin
	perform twheel.see_agent(twheel.service_id(service), agent);
end $$;

-- The agent gets no more broadcasts. Those it has not finished fail (bury()).
create function twheel.agent_is_gone(service text, agent text) returns void
language plpgsql security definer set search_path = twheel, pg_temp as $$
#variable_conflict use_variable
begin
	delete from twheel.agent a where a.service = twheel.service_id(agent_is_gone.service)
		and a.agent = agent_is_gone.agent;
end $$;

-- For consumers. A row that is taken is invisible to others for the time "visible"; if it is not
-- finished by then, the next consumer may take it. "floor" is the least seq that the consumer
-- has not seen finished: the scan skips dead rows of the index before it. Pass 0 from time to
-- time: rows are not committed in the order of seq, and failed rows come back. A row is dead
-- when as many of its consumers have died as the service has attempts.
create function twheel.take(service text, most integer default 1,
	visible interval default interval '30 seconds', floor bigint default 0,
	agent text default '')
returns table (seq bigint, job bigint, due timestamptz, idem uuid, taken integer,
	       order_key text, tag text, payload bytea)
language plpgsql security definer set search_path = twheel, pg_temp
set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
	s integer := twheel.service_id(service);
	attempts integer := (select v.max_attempts from twheel.service v where v.id = s);
begin
	if take.agent <> '' then
		perform twheel.see_agent(s, take.agent);
	end if;
	return query
	with p as materialized (
		select q.* from twheel.queue q
		where q.service = s and q.seq >= coalesce(take.floor, 0)
			and q.visible <= clock_timestamp() and q.agent in ('', take.agent)
			and (q.order_key is null or not exists (
				select from twheel.queue b where b.order_key = q.order_key
					and b.service = q.service and b.agent = q.agent
					and b.seq < q.seq))
		order by q.seq limit coalesce(most, 1) for update skip locked
	), lost as (
		insert into twheel.execlog (job, late_us, took_us, service, attempt, outcome, message)
		select p.job, p.late_us, twheel.us_since(p.began), p.service, p.taken,
			case when p.taken < attempts then 1 else 2 end, 'neither finished nor failed'
		from p where p.began is not null
	), gone as (
		delete from twheel.queue q
		where q.seq = any(array(select p.seq from p)) and q.taken >= attempts
		returning q.*
	), dead as (
		insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag,
					    agent, message, payload)
		select g.job, g.due, g.service, g.taken, 4, g.key, g.order_key, g.tag,
			nullif(g.agent, ''), case when g.began is null then 'has no attempts left'
			     else 'taken, and neither finished nor failed' end, g.payload
		from gone g
	)
	update twheel.queue q set visible = clock_timestamp() + take.visible, taken = q.taken + 1,
		began = clock_timestamp(), late_us = twheel.us_since(greatest(q.due, q.visible))
	where q.seq = any(array(select p.seq from p)) and q.taken < attempts
	returning q.seq, q.job, q.due, q.idem, q.taken, q.order_key, q.tag, q.payload;
end $$;

-- True unless the row was given back, or somebody else has taken it since.
create function twheel.extend(seq bigint, taken integer, visible interval) returns boolean
language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_variable
begin
	update twheel.queue q set visible = clock_timestamp() + extend.visible
	where q.seq = extend.seq and q.taken = extend.taken and q.began is not null;
	return found;
end $$;

-- Finishes a row that was taken. False: it was given back, or cancelled after its time was over,
-- or somebody else has taken it since; then this transaction should not be committed.
create function twheel.finish(seq bigint, taken integer) returns boolean
language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_variable
begin
	with d as (
		delete from twheel.queue q
		where q.seq = finish.seq and q.taken = finish.taken and q.began is not null
		returning q.*
	)
	insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag, agent,
				    late_us, took_us)
	select d.job, d.due, d.service, d.taken, 3, d.key, d.order_key, d.tag, nullif(d.agent, ''),
		d.late_us, twheel.us_since(d.began) from d;
	return found;
end $$;

-- Like finish() for each element of the arrays, in one statement; what is in them twice counts
-- once. Returns those for which finish() would be false: if there are any, this transaction
-- should not be committed.
create function twheel.finish_many(seqs bigint[], takens integer[]) returns bigint[]
language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off set enable_nestloop = off as $$
#variable_conflict use_column
declare
	lost bigint[];
begin
	with d as (
		delete from twheel.queue q using unnest(seqs, takens) u(seq, taken)
		where q.seq = any(seqs) and q.seq = u.seq and q.taken = u.taken
			and q.began is not null
		returning q.*
	), done as (
		insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag,
					    agent, late_us, took_us)
		select d.job, d.due, d.service, d.taken, 3, d.key, d.order_key, d.tag,
			nullif(d.agent, ''), d.late_us, twheel.us_since(d.began) from d
	)
	select coalesce(array_agg(u.seq order by u.seq), '{}') into lost
	from unnest(seqs, takens) with ordinality u(seq, taken, n)
	where u.n <= cardinality(seqs) and (u.seq is null or u.taken is null
		or (u.seq, u.taken) not in (select d.seq, d.taken from d));	-- hashed
	return lost;
end $$;

-- Gives back a row that was taken: it can be taken again after "again" or the backoff, or is
-- dead if that was the last attempt of the service. 'again', 'dead', or 'lost' if this consumer
-- no longer had it.
create function twheel.fail(seq bigint, taken integer, message text default null,
			    again interval default null)
returns text language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_variable
declare
	row twheel.queue;
	s twheel.service;
	is_last boolean;
begin
	message := left(message, 1000);
	select q.* into row from twheel.queue q
	where q.seq = fail.seq and q.taken = fail.taken and q.began is not null for update;
	if not found then
		return 'lost';
	end if;
	select v.* into s from twheel.service v where v.id = row.service;
	is_last := taken >= s.max_attempts;
	insert into twheel.execlog (job, late_us, took_us, service, attempt, outcome, message)
	values (row.job, row.late_us, twheel.us_since(row.began), row.service, taken,
		case when is_last then 2 else 1 end, message);
	if not is_last then
		update twheel.queue q set began = null, visible = clock_timestamp() + coalesce(again,
			random() * least(s.backoff_max_ms, s.backoff_ms * 2.0 ^ least(taken - 1, 30))
				* interval '1 millisecond')
		where q.seq = fail.seq;
		return 'again';
	end if;
	delete from twheel.queue q where q.seq = fail.seq;
	insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag, agent,
				    message, payload)
	values (row.job, row.due, row.service, taken, 4, row.key, row.order_key, row.tag,
		nullif(row.agent, ''), message, row.payload);
	return 'dead';
end $$;

-- Of a broadcast those agents have it again that had failed.
create function twheel.requeue_broadcast(job bigint, made bigint) returns bigint
language plpgsql set enable_seqscan = off as $$
#variable_conflict use_variable
begin
	with b as (
		select l.* from twheel.backlog l where l.job = requeue_broadcast.job and l.state = 4
		for update
	), kept as (
		select s.id from twheel.service s
		where s.id in (select b.service from b) for key share
	), q as (
		insert into twheel.queue (job, due, idem, service, agent, order_key, tag, payload)
		select made, clock_timestamp(), gen_random_uuid(), b.service, b.agent, b.order_key,
			b.tag, b.payload
		from b join kept k on k.id = b.service
		returning agent
	)
	update twheel.backlog l set state = 6, requeued = made, payload = null
	from b join q using (agent)
	where l.job = b.job and l.state = 4 and l.agent = b.agent and l.at = b.at;
	if not found then
		raise no_data_found using message = 'the service is gone';
	end if;
	perform pg_notify('twheel_queue', s.service) from twheel.service s
	join twheel.backlog l on l.service = s.id where l.job = requeue_broadcast.job and s.notify;
	return made;
end $$;

-- Agents that were not seen for an hour are dead: nobody takes what is theirs.
create function twheel.bury(most integer default 1000) returns integer
language plpgsql set enable_seqscan = off as $$
#variable_conflict use_variable
declare
	nr integer;
begin
	delete from twheel.agent a where (a.service, a.agent) in (
		select o.service, o.agent from twheel.agent o
		where o.seen < clock_timestamp() - interval '1 hour' for update skip locked
	) and a.seen < clock_timestamp() - interval '1 hour';
	with p as materialized (
		select q.seq from twheel.queue q
		where q.agent <> '' and (q.began is null or q.visible <= clock_timestamp())
			and not exists (select from twheel.agent a where a.service = q.service
					and a.agent = q.agent)
		limit most for update skip locked
	), d as (
		delete from twheel.queue q where q.seq = any(array(select p.seq from p)) returning q.*
	)
	insert into twheel.backlog (job, due, service, attempt, state, key, order_key, tag, agent,
				    message, payload)
	select d.job, d.due, d.service, d.taken, 4, d.key, d.order_key, d.tag, d.agent,
		'its agent is gone', d.payload from d;
	get diagnostics nr = row_count;
	return nr;
end $$;

-- Submits a dead job again, as a new one, which the old one names from then on. Null: there is
-- no such dead job.
create function twheel.requeue(job bigint) returns bigint
language plpgsql security definer set search_path = twheel, pg_temp
set enable_seqscan = off as $$
#variable_conflict use_variable
declare
	b twheel.backlog;
	made record;
begin
	select l.* into b from twheel.backlog l where l.job = requeue.job and l.state = 4
	order by l.agent limit 1 for update;
	if not found then
		return null;
	end if;
	if b.agent is not null then
		-- Before there is an id: see remove_service().
		perform from twheel.service v where v.id = b.service for key share;
		return twheel.requeue_broadcast(job, nextval('twheel.job_id'));
	end if;
	select i.* into made from twheel.insert_jobs(
		array[floor(random() * 64)::smallint], array[b.service], array[clock_timestamp()],
		array[null::text], array[b.order_key], array[b.tag], array[0], array[b.payload]) i;
	update twheel.backlog l set state = 6, requeued = made.job, payload = null
	where l.job = requeue.job and l.state = 4;
	perform twheel.announce(made.shard, made.job, made.due, b.service, 0, null,
				octet_length(b.payload));
	return made.job;
end $$;

-- What gives jobs at its instants. Which those are follows from what it says, and only nodes can
-- tell (../schedule.c). The owner of its shard makes the jobs of the next seconds (../plan.c), in
-- one statement with "last": an instant up to that was made or passed over, one after it was not.
-- So each gives one job. "next" says when to look at it, and is believed by nobody.
create table twheel.schedule (
	id		integer generated always as identity primary key,
	schedule	text not null unique,
	service		integer not null references twheel.service (id),
	shard		smallint not null,
	version		bigint not null default 1,	-- of what it says
	timing		bigint not null default 1,	-- of what says when, and what is missed
	last		timestamptz not null,
	next		timestamptz not null default '-infinity',	-- infinity: never
	cron		text,			-- or every_ms
	tz		text,			-- of that; null is UTC
	every_ms	bigint,
	count		bigint,			-- of those; null: no end
	start_at	timestamptz,
	end_at		timestamptz,
	began		timestamptz not null default clock_timestamp(),	-- the first one of every_ms,
						-- unless start_at says
	misfire		text not null default 'smart',
	misfire_ms	integer not null default 60000,
	overlap		text not null default 'allow',
	broadcast	boolean not null default false,
	paused		boolean not null default false,
	slack_ms	integer not null default 0,
	payload		bytea not null default '',
	error		text,			-- why there are no instants, as nodes have found
	created		timestamptz not null default clock_timestamp()
) with (fillfactor = 70);
create index schedule_next on twheel.schedule (shard, next);
create index schedule_service on twheel.schedule (service);

-- What a schedule may be, whoever writes it; as check_service(). Whether the expression and the
-- zone are any is seen by a node.
create function twheel.check_schedule() returns trigger language plpgsql as $$
declare
	wrong text[];
begin
	if tg_op = 'UPDATE' and new.schedule <> old.schedule then
		raise invalid_parameter_value
			using message = 'schedule must not be changed', column = 'schedule';
	elsif (new.schedule ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$') is not true then
		wrong := array['schedule', '1 to 100 letters, digits, and ._- behind the first'];
	elsif new.cron is null and new.every_ms is null then
		wrong := array['cron', 'there, or every_ms'];
	elsif new.cron is not null and coalesce(new.every_ms, new.count) is not null then
		wrong := array['cron', 'null if there is every_ms or count'];
	elsif new.cron is null and new.tz is not null then
		wrong := array['tz', 'null if there is no cron'];
	elsif new.cron !~ '^\s*(@[A-Za-z]{1,20}|([0-9A-Za-z*/,?#-]+\s+){4,6}[0-9A-Za-z*/,?#-]+)\s*$'
	      or length(new.cron) > 500 then
		wrong := array['cron', 'five to seven fields, or @hourly, @daily and so on'];
	elsif new.tz !~ '^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$' or length(new.tz) > 100 then
		wrong := array['tz', 'the name of a time zone'];
	elsif new.end_at <= new.start_at then
		wrong := array['end_at', 'after start_at'];
	elsif new.misfire not in ('smart', 'fire_now', 'do_nothing', 'ignore') then
		wrong := array['misfire', 'smart, fire_now, do_nothing or ignore'];
	elsif new.overlap not in ('allow', 'skip', 'queue') then
		wrong := array['overlap', 'allow, skip or queue'];
	elsif new.broadcast and (select s.kind <> 'queue' from twheel.service s
				 where s.id = new.service for share) then	-- check_service()
		wrong := array['broadcast', 'false but for services that are queues'];
	elsif length(new.payload) > 1048576 then
		wrong := array['payload', '1 MiB at most'];
	else
		select array[c.name, format('%s to %s', c.least, c.most)] into wrong
		from (values ('every_ms', new.every_ms, 1, 3155760000000),
			     ('count', new.count, 1, 9007199254740992),
			     ('misfire_ms', new.misfire_ms, 1000, 86400000),
			     ('slack_ms', new.slack_ms, 0, 3600000)
		) c(name, value, least, most)
		where c.value not between c.least and c.most
		union all
		select array[c.name, 'a time from 1970 to 9999']
		from (values ('start_at', new.start_at), ('end_at', new.end_at)) c(name, value)
		where c.value not between '1970-01-01Z' and '9999-12-31Z' limit 1;
	end if;
	if wrong is not null then
		raise invalid_parameter_value
			using message = format('%s must be %s', wrong[1], wrong[2]), column = wrong[1];
	end if;
	return new;
end $$;
create trigger schedule_can_be before insert or update
	of schedule, service, cron, tz, every_ms, count, start_at, end_at, misfire, misfire_ms,
		overlap, broadcast, paused, slack_ms, payload on twheel.schedule
	for each row execute function twheel.check_schedule();

-- Its instants are those after this: but the first one of every_ms is at once.
create function twheel.begin_schedule() returns trigger language plpgsql as $$
begin
	new.shard := twheel.shard_of(new.service, new.schedule);
	new.last := clock_timestamp();
	new.created := new.last;
	new.began := new.last + interval '1 microsecond';
	new.next := case when new.paused then 'infinity' else '-infinity' end;
	return new;
end $$;
create trigger schedule_new before insert on twheel.schedule
	for each row execute function twheel.begin_schedule();

create function twheel.tell_of_schedules() returns trigger language plpgsql as $$
begin
	perform pg_notify('twheel_schedule', '');
	return null;
end $$;
create trigger schedule_made after insert on twheel.schedule
	for each row execute function twheel.tell_of_schedules();

-- Takes back what is planned and has not begun, from the first instant on of which that is so of
-- all that come after it: what is before that has been done, or is about to be. The row of the
-- schedule is locked, so that nothing is planned; jobs are locked first, as a batch that is under
-- way may have begun them. "free" is such that all instants after it have no job; "taken" is the
-- first that was taken back.
--
-- In a snapshot of before, one of these locks fails if there is anything that it does not show.
create function twheel.unplan(schedule integer, out free timestamptz, out taken timestamptz)
language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
	since timestamptz := clock_timestamp() - interval '1 second';
begin
	perform from twheel.job j where j.schedule = unplan.schedule and j.at > since
	order by j.id for update;
	since := greatest(since, clock_timestamp());
	free := greatest(since, (select max(j.at) from twheel.job j
				 where j.schedule = unplan.schedule and j.at > since
					and (j.state <> 0 or j.attempt <> 0)));
	with d as (
		delete from twheel.job j where j.schedule = unplan.schedule and j.at > free
		returning j.at
	)
	select min(d.at) into taken from d;
end $$;

-- An edit: what was planned is planned anew. With other times it counts from now, or behind what
-- has begun; but if an instant of before is not planned yet, as nodes are behind, from the last one
-- that was. Else each instant that had a job is to have one again.
create function twheel.edit_schedule() returns trigger language plpgsql as $$
declare
	is_retimed boolean := (new.cron, new.tz, new.every_ms, new.count, new.start_at, new.end_at)
		is distinct from (old.cron, old.tz, old.every_ms, old.count, old.start_at, old.end_at);
	p record;
begin
	if not is_retimed and (new.service, new.misfire, new.misfire_ms, new.overlap, new.broadcast,
			       new.paused, new.slack_ms, new.payload)
			= (old.service, old.misfire, old.misfire_ms, old.overlap, old.broadcast,
			   old.paused, old.slack_ms, old.payload) then
		return new;
	end if;
	select u.* into p from twheel.unplan(old.id) u;
	new.next := '-infinity';
	if not is_retimed then
		new.last := least(old.last, p.taken - interval '1 microsecond');
		if not old.paused and old.error is null then
			new.next := least(old.next, p.taken);
		end if;
	elsif old.paused or old.error is not null or old.next > p.free then
		new.last := p.free;
	else
		new.last := least(old.last, p.free);
	end if;
	if new.every_ms is distinct from old.every_ms
	   or new.start_at is distinct from old.start_at then
		new.began := new.last + interval '1 microsecond';
	end if;
	if new.paused then
		new.next := 'infinity';
	end if;
	new.shard := twheel.shard_of(new.service, new.schedule);
	new.version := old.version + 1;
	new.timing := old.timing + (is_retimed or (new.misfire, new.misfire_ms)
				    <> (old.misfire, old.misfire_ms))::integer;
	new.error := null;
	perform pg_notify('twheel_schedule', '');
	return new;
end $$;
create trigger schedule_edited before update
	of schedule, service, cron, tz, every_ms, count, start_at, end_at, misfire, misfire_ms,
		overlap, broadcast, paused, slack_ms, payload on twheel.schedule
	for each row execute function twheel.edit_schedule();

create function twheel.end_schedule() returns trigger language plpgsql as $$
begin
	perform twheel.unplan(old.id);
	return old;
end $$;
create trigger schedule_gone before delete on twheel.schedule
	for each row execute function twheel.end_schedule();

-- Makes or replaces a schedule. True if there was none of that name. If it is the same as
-- before, nothing changes. With "paused" null it stays paused or active as it is, even if
-- somebody else is about to change that.
create function twheel.schedule(schedule text, service text, cron text default null,
	every interval default null, tz text default null, count bigint default null,
	start_at timestamptz default null, end_at timestamptz default null,
	misfire text default 'smart', misfire_ms integer default 60000,
	overlap text default 'allow', broadcast boolean default false,
	slack_ms integer default 0, payload bytea default '', paused boolean default false)
returns boolean language plpgsql security definer set search_path = twheel, pg_temp as $$
#variable_conflict use_variable
declare
	every_ms numeric := extract(epoch from every) * 1000;
	is_new boolean;
begin
	if every_ms <> floor(every_ms) or every_ms not between 1 and 3155760000000
	   or extract(month from every) <> 0 or extract(year from every) <> 0 then
		raise invalid_parameter_value using column = 'every',
			message = 'every must be whole milliseconds, and up to 100 years of days';
	end if;
	insert into twheel.schedule as s (schedule, service, cron, tz, every_ms, count, start_at,
		end_at, misfire, misfire_ms, overlap, broadcast, slack_ms, payload, paused)
	values (schedule, twheel.service_id(service), cron, tz, every_ms, count, start_at, end_at,
		coalesce(misfire, 'smart'), coalesce(misfire_ms, 60000), coalesce(overlap, 'allow'),
		coalesce(broadcast, false), coalesce(slack_ms, 0), coalesce(payload, ''),
		coalesce(paused, false))
	on conflict on constraint schedule_schedule_key do update
	set service = excluded.service, cron = excluded.cron, tz = excluded.tz,
		every_ms = excluded.every_ms, count = excluded.count, start_at = excluded.start_at,
		end_at = excluded.end_at, misfire = excluded.misfire,
		misfire_ms = excluded.misfire_ms, overlap = excluded.overlap,
		broadcast = excluded.broadcast, slack_ms = excluded.slack_ms,
		payload = excluded.payload, paused = coalesce(paused, s.paused)
	returning s.xmax = 0 into is_new;
	return is_new;
end $$;

-- Removes a schedule. False: there is none of that name. Jobs that have begun go on.
create function twheel.unschedule(schedule text) returns boolean
language plpgsql security definer set search_path = twheel, pg_temp as $$
#variable_conflict use_variable
begin
	delete from twheel.schedule s where s.schedule = unschedule.schedule;
	return found;
end $$;

-- Pauses or resumes a schedule. False: there is none of that name. Times that are missed
-- meanwhile have misfired when it resumes.
create function twheel.pause_schedule(schedule text, paused boolean default true) returns boolean
language plpgsql security definer set search_path = twheel, pg_temp as $$
#variable_conflict use_variable
begin
	update twheel.schedule s set paused = coalesce(pause_schedule.paused, true)
	where s.schedule = pause_schedule.schedule;
	return found;
end $$;

-- Bits of job.flags: 1 is skipped if another of its order key is not over, 2 is for each agent of
-- the service, 4 is looked at if it is late.
create function twheel.schedule_flags(overlap text, broadcast boolean, misfire text)
returns smallint language sql immutable as $$
	select nullif((overlap = 'skip')::integer + broadcast::integer * 2
		      + (misfire <> 'ignore')::integer * 4, 0)::smallint
$$;

-- What is done about instants that were missed: of all the last one is fired, or none, or each.
create function twheel.misfire_policy(misfire text, every_ms bigint, count bigint) returns text
language sql immutable as $$
	select case when misfire <> 'smart' then misfire
		    when every_ms is not null and count is null then 'do_nothing'
		    else 'fire_now' end
$$;

-- What is planned is not what the times are any more, as the zone has changed, if the schedule is
-- what the caller has seen.
create function twheel.replan(schedule integer, timing bigint, last timestamptz) returns boolean
language plpgsql set enable_seqscan = off as $$
#variable_conflict use_variable
begin
	perform from twheel.schedule s
	where s.id = schedule and s.timing = replan.timing and s.last = replan.last
	for no key update;
	if not found then
		return false;
	end if;
	last := (select u.free from twheel.unplan(schedule) u);
	update twheel.schedule s
	set timing = s.timing + 1, last = replan.last, next = '-infinity' where s.id = schedule;
	return true;
end $$;

-- Submits a job of a schedule now, in addition to its times, even if it is paused. Null: there
-- is none of that name.
create function twheel.run_schedule(schedule text, announce boolean default true) returns bigint
language plpgsql security definer set search_path = twheel, pg_temp as $$
#variable_conflict use_variable
declare
	clock timestamptz := twheel.owe();
	s twheel.schedule;
	made record;
begin
	select c.* into s from twheel.schedule c where c.schedule = run_schedule.schedule for share;
	if not found then
		return null;
	end if;
	-- Before there is an id (remove_service()), as the schedule may be gone before this commits.
	perform from twheel.service v where v.id = s.service for key share;
	insert into twheel.job as j (id, due, at, service, slack_ms, shard, order_key, tag, flags,
				     payload)
	values (nextval('twheel.job_id'), clock, clock, s.service, s.slack_ms, s.shard,
		case when s.overlap <> 'allow' then s.schedule end, s.schedule,
		twheel.schedule_flags(s.overlap, s.broadcast, 'ignore'), s.payload)
	returning j.shard, j.id, j.due, j.service, j.slack_ms, j.flags into made;
	if announce then
		perform twheel.announce(made.shard, made.id, made.due, made.service, made.slack_ms,
					made.flags, octet_length(s.payload));
	end if;
	return made.id;
end $$;

-- For people, by the names and states that they know.
create view twheel.job_callback_service as
	select service, kind, target, array(select jsonb_object_keys(headers) order by 1) as headers,
		timeout_ms, accept_ms, max_attempts, backoff_ms, backoff_max_ms, concurrency,
		rate_per_s, delivery, notify, paused from twheel.service;
create view twheel.job_delay_task as
	select j.id, s.service, j.at as due, twheel.job_state(j.state, j.due) as state,
		j.attempt, j.key, j.order_key, j.tag, length(j.payload) as bytes
	from twheel.job j join twheel.service s on s.id = j.service
	union all
	select q.job, s.service, q.due, twheel.queue_state(q.visible, q.began),
		q.taken, q.key, q.order_key, q.tag, length(q.payload)
	from twheel.queue q join twheel.service s on s.id = q.service;
create view twheel.job_delay_task_execlog as
	select e.at, e.job, s.service, e.attempt, round(e.late_us / 1000.0, 3) as late_ms,
		round(e.took_us / 1000.0, 3) as took_ms, e.status,
		(array['done', 'again', 'failed', 'accepted', 'handed over'])[e.outcome + 1] as outcome,
		e.message, e.node
	from twheel.execlog e left join twheel.service s on s.id = e.service
	union all
	select b.at, b.job, s.service, b.attempt, round(b.late_us / 1000.0, 3),
		round(b.took_us / 1000.0, 3), b.status,
		case b.state when 3 then 'done' else 'failed' end, b.message, b.node
	from twheel.backlog b left join twheel.service s on s.id = b.service
	where b.late_us is not null;
create view twheel.job_delay_task_backlog as
	select b.at, b.job, s.service, b.due, b.attempt,
		twheel.end_state(b.state) as state,
		b.key, b.order_key, b.tag, b.message, b.requeued, b.agent
	from twheel.backlog b left join twheel.service s on s.id = b.service;
-- "next" is the next one that has not begun.
create view twheel.job_schedule as
	select c.schedule, s.service,
		case when c.paused then 'paused' when c.error is not null then 'wrong'
		     when c.next = 'infinity' then 'ended' else 'active' end as state,
		c.cron, c.tz, c.every_ms, c.count, c.start_at, c.end_at, c.misfire, c.misfire_ms,
		c.overlap, c.broadcast, c.slack_ms, length(c.payload) as bytes, c.paused,
		coalesce((select min(j.at) from twheel.job j
			  where j.schedule = c.id and j.state = 0 and j.at > clock_timestamp()),
			 nullif(nullif(c.next, 'infinity'), '-infinity')) as next,
		c.last, c.error, c.version, c.created, c.began, c.payload
	from twheel.schedule c join twheel.service s on s.id = c.service;

revoke all on all functions in schema twheel from public;
grant usage on schema twheel to twheel_node, twheel_app;
grant select, insert, update, delete on twheel.node, twheel.service, twheel.job, twheel.seen,
	twheel.queue, twheel.execlog, twheel.backlog, twheel.schedule, twheel.agent to twheel_node;
grant select, update on twheel.shard to twheel_node;
grant select on twheel.cluster to twheel_node;
grant usage, select on all sequences in schema twheel to twheel_node;
grant execute on all functions in schema twheel to twheel_node;
grant execute on function twheel.submit, twheel.cancel, twheel.cancel_tag, twheel.move,
	twheel.job_state, twheel.queue_state, twheel.end_state, twheel.fate, twheel.take,
	twheel.extend, twheel.finish, twheel.finish_many, twheel.fail, twheel.requeue,
	twheel.schedule, twheel.unschedule, twheel.pause_schedule, twheel.run_schedule,
	twheel.agent_is_here, twheel.agent_is_gone
	to twheel_app;
grant select on twheel.job_callback_service, twheel.job_delay_task,
	twheel.job_delay_task_execlog, twheel.job_delay_task_backlog, twheel.job_schedule
	to twheel_app, twheel_node;
