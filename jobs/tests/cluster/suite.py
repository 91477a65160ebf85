# SPDX-License-Identifier: GPL-2.0
"""Tests of clusters, and what runs them: TAP."""

import argparse
import concurrent.futures
import contextlib
import io
import os
import re
import subprocess
import sys
import time
import traceback

from cluster import BACKEND, HERE, Cluster, is_reported, percentiles

TESTS = []
NEVER = ("missed", "early", "doubled", "ended_twice", "after_cancel")


class Skip(Exception):
    """For what there is not on this machine."""


def test(name, nodes=3, slow=False, around=contextlib.nullcontext, **service):
    """What is slow is run with --all, or if it is named. around() is a context that gives more
    for the cluster, or skips the test."""
    def add(fn):
        TESTS.append((name, slow, around, dict(service, nodes=nodes), fn))
        return fn
    return add


def check(c, twice_allowed=False, seconds=90, early=0.0):
    """What there is to complain of, as text; empty if all is well. "early" by so many s is not."""
    wrong = []
    if not c.settled(seconds):
        wrong.append("it does not settle")
    book = c.ledger(early)
    for name in NEVER + (() if twice_allowed else ("called_twice",)) + ("owed",):
        if book[name]:
            wrong.append("%s: %d, as %s" % (name, len(book[name]), book[name][:5]))
    for row in c.rows("select id, service, state, attempt, shard, at, due from twheel.job "
                      "order by id limit 5") if book["owed"] else ():
        print("# owed: " + " ".join(row))
    print("# %d jobs, lateness %s" % (len(c.submitted), percentiles(book["late"])))
    return "; ".join(wrong)


def load(c, nr=600, delay_ms=2000, spread_ms=15000, nodes=()):
    nodes = nodes or c.nodes
    for i, n in enumerate(nodes):
        c.submit(n, "queue", nr // len(nodes), delay_ms, spread_ms)
        c.submit(n, "http", nr // len(nodes) // 2, delay_ms + i, spread_ms)


def fill_socket(c, node, stop):
    """Until a backend of the node waits for it, with its shards locked: what it has to send is more
    than any buffer takes. The uuid by which the node owns these."""
    c.submit(node, "http", 1, 0)    # has its statement prepared
    c.wait(lambda: c.consumer.journal, 30)
    before = set(c.submitted)
    c.submit(node, "http", 8, 3600000, page=1, payload="x" * 700000)
    jobs = set(c.submitted) - before
    # The others would have some of them, or all.
    c.sql("update twheel.job set shard = (select min(shard) from twheel.shard where owner = '%s') "
          "where id = any('{%s}')" % (node.uuid(), ",".join(map(str, jobs))))
    at = time.time() + 5
    c.sql("select twheel.move(id, to_timestamp(%f)) from unnest('{%s}'::bigint[]) id"
          % (at, ",".join(map(str, jobs))))
    c.submitted.update((job, ("http", at)) for job in jobs)
    time.sleep(max(0, at - 1 - time.time()))
    stop()
    stuck = []
    c.wait(lambda: stuck.extend(c.rows(
        "select split_part(a.application_name, ' ', 2) from pg_stat_activity a "
        "join pg_locks l using (pid) where a.wait_event = 'ClientWrite' "
        "and a.application_name like 'twheeld % fire' "
        "and l.relation = 'twheel.shard'::regclass and l.mode = 'RowShareLock'")) or stuck, 20)
    return stuck[0][0] if len(stuck) == 1 else None


def is_freed(c, uuid):
    """Whether what was locked under that name is, though it is still as it was."""
    return c.wait(lambda: c.sql("select count(*) from twheel.shard where owner = '%s'" % uuid)
                  == "0", 60)


def run_in_cluster(name, around, service, fn):
    """What came of it, how many jobs there were, and what the ledger had."""
    with around() as more:
        c = Cluster(**service, **(more or {}))
        try:
            wrong = fn(c) if c.ready() else "the cluster does not get ready"
        finally:
            logs = {n.name: open(n.log, encoding="utf-8").read() for n in c.nodes}
            c.close()
    if not wrong and not all("wheel backend=%s\n" % BACKEND in log for log in logs.values()):
        wrong = "a node has its timers elsewhere"
    if any(is_reported(log) for log in logs.values()):
        wrong = ("a sanitizer reports something; " + wrong).strip("; ")
    print("%sok - %s" % ("not " * bool(wrong), name))
    if wrong:
        print("# " + wrong)
        for node, log in logs.items():
            for line in log.splitlines()[-25:]:
                print("#   %s: %s" % (node, line))
    return wrong, len(c.submitted), c.books[-1] if c.books else None


def run(index):
    """Of a process of its own: what it printed, and what came of it, or None."""
    name, _, around, service, fn = TESTS[index]
    result = None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            result = run_in_cluster(name, around, service, fn)
        except Skip as why:
            print("ok - %s # SKIP %s" % (name, why))
        except Exception:    # of a test, which is not to end the others
            result = "it broke", 0, None
            print("not ok - %s" % name)
            for line in traceback.format_exc().splitlines():
                print("# " + line)
    return out.getvalue(), result


def sum_up(name, results):
    """One line of all rounds."""
    books = [book for _, _, book in results if book]
    why = {}
    for book in books:
        for nr, message in book["why_twice"]:
            why[message] = why.get(message, 0) + int(nr)
    late = sorted(x for book in books for x in book["late"])
    counts = {key: sum(len(book[key]) for book in books) for key in NEVER + ("called_twice",)}
    print("# SUM %s: rounds %d, not ok %d, jobs %d, missed %d, early %d, doubled in queue %d, "
          "called twice %d%s; %s" % (
              name, len(results), sum(bool(wrong) for wrong, _, _ in results),
              sum(nr for _, nr, _ in results), counts["missed"], counts["early"],
              counts["doubled"], counts["called_twice"],
              "".join(" (%d: %s)" % (nr, text) for text, nr in sorted(why.items())),
              percentiles(late)), flush=True)


def main():
    parser = argparse.ArgumentParser(description="Breaks clusters. Speaks TAP.")
    parser.add_argument("--all", action="store_true", help="those that are slow as well")
    parser.add_argument("--rounds", type=int, default=1, help="each so often, and a sum of each")
    parser.add_argument("--jobs", type=int, default=4, help="so many at a time, which mostly wait")
    parser.add_argument("words", nargs="*", help="of the names of tests")
    args = parser.parse_args()
    if "TWHEELD" not in os.environ:
        subprocess.run(["make", "-s", "-C", os.path.join(HERE, "../..")], check=True,
                       stdout=sys.stderr)
    chosen = [i for i, t in enumerate(TESTS) if all(w in t[0] for w in args.words)
              and (args.all or args.words or not t[1])]
    print("1..%d" % (len(chosen) * args.rounds), flush=True)
    number = failed = 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        done = pool.map(run, [i for i in chosen for _ in range(args.rounds)])
        for i in chosen:
            results = []
            for _ in range(args.rounds):
                text, result = next(done)
                number += 1
                print(re.sub("^((?:not )?ok) -", r"\1 %d -" % number, text, flags=re.M), end="",
                      flush=True)
                if result:
                    results.append(result)
                    failed += bool(result[0])
            if args.rounds > 1 and results:
                sum_up(TESTS[i][0], results)
    return failed > 0
