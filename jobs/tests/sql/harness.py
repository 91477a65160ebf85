# SPDX-License-Identifier: GPL-2.0
"""A server of its own, sessions, and tests that are named by what they find true."""

import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

from client import Error, Session

HERE = os.path.dirname(os.path.abspath(__file__))
POSTGRES = os.path.join(HERE, "..", "postgres")
MAX_WAIT_S = 60		# before what does not happen is a failure
TABLES = ("schedule", "agent", "job", "seen", "queue", "execlog", "backlog", "service", "node")

tests = []


def test(name):
    def add(function):
        tests.append((name, function))
        return function
    return add


def equal(got, expected):
    if got != expected:
        raise AssertionError("%r instead of %r" % (got, expected))


def true(what):
    if what is not True and what != "t":
        raise AssertionError("%r instead of true" % (what,))


class Server:
    """Where the tests run. owner, app and node are sessions; more() makes others."""

    def __init__(self, schema):
        with open(schema, encoding="utf-8") as file:
            self.schema = file.read()
        self.top = tempfile.TemporaryDirectory()
        self.dir = os.path.join(self.top.name, "postgres")
        self.sessions = []
        subprocess.run([POSTGRES, "start", self.dir, "-c", "fsync=off",
                        "-c", "statement_timeout=%ds" % MAX_WAIT_S], check=True,
                       stdout=subprocess.DEVNULL)

    def stop(self):
        subprocess.run([POSTGRES, "kill", self.dir], check=True)
        self.top.cleanup()

    def more(self, user="owner", database="twheel"):
        self.sessions.append(Session(self.dir + "/.s.PGSQL.5432", user, database))
        return self.sessions[-1]

    def close(self):
        for session in self.sessions:
            session.close()
        self.sessions = []

    def load(self, database, user="owner"):
        """As a migration is: in one transaction."""
        session = self.more(user, database)
        try:
            session.rows("begin;" + self.schema + ";commit")
        except Error:
            session.rows("rollback")
            raise
        return session

    def begin(self):
        self.postgres = self.more("postgres")
        self.owner = self.more()
        self.app = self.more("app")
        self.node = self.more("node")
        self.owner.rows("".join("delete from twheel.%s;" % table for table in TABLES))
        self.owner.rows("insert into twheel.service (service, kind, target) values"
                        " ('h', 'http', 'http://h/'), ('other', 'http', 'http://o/'),"
                        " ('q', 'queue', ''), ('r', 'queue', '')")

    def service(self, name):
        return int(self.owner.value("select id from twheel.service where service = '%s'" % name))

    def until(self, what):
        end = time.monotonic() + MAX_WAIT_S
        while not what():
            if time.monotonic() > end:
                raise AssertionError("it does not happen")
            time.sleep(0.002)

    def blocked(self, session):
        """Waits until a session waits for a lock."""
        self.until(lambda: session.ready() or self.postgres.value(
            "select wait_event_type = 'Lock' from pg_stat_activity where pid = %d"
            % session.pid) == "t")
        equal(("it waits", not session.ready()), ("it waits", True))

    def in_queue(self, order_keys, service="q"):
        """Puts rows into the queue as a node does; None is no order key. Gives each seq."""
        return [int(self.owner.value(
            "insert into twheel.queue (job, due, idem, service, order_key, payload) values"
            " (nextval('twheel.job_id'), clock_timestamp(), gen_random_uuid(), %d, %s, 'x')"
            " returning seq" % (self.service(service), "'%s'" % key if key else "null")))
                for key in order_keys]

    def on_queue(self, settings):
        self.owner.rows("update twheel.service set %s where service = 'q'" % settings)


def run(server, first, words):
    failed = 0
    chosen = [t for t in tests if not words or any(re.search(w, t[0]) for w in words)]
    for number, (name, function) in enumerate(first + chosen, 1):
        try:
            if (name, function) not in first:
                server.begin()
            function(server)
            print("ok %d - %s" % (number, name))
        except (AssertionError, Error, EOFError):
            failed += 1
            print("not ok %d - %s" % (number, name))
            for line in traceback.format_exc().splitlines()[-6:]:
                print("# " + line)
        finally:
            server.close()
        sys.stdout.flush()
    print("1..%d" % (len(first) + len(chosen)))
    return failed
