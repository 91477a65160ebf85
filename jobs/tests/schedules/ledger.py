# SPDX-License-Identifier: GPL-2.0
"""What schedules have fired, and what an oracle that knows nothing but seconds says they should."""

import subprocess
import threading
import time

SEC = 1000000       # all times here are us since 1970, of the database's clock


def clock(c):
    return int(c.sql("select (extract(epoch from clock_timestamp()) * 1000000)::bigint"))


def stamp(us):
    return "'epoch'::timestamptz + %d * interval '1 us'" % us


def call(name, service="queue", **what):
    """What makes or replaces a schedule."""
    return "select twheel.schedule('%s', '%s'%s)" % (name, service, "".join(
        ", %s => %s" % (k, v if isinstance(v, (int, bool)) or v.startswith("'epoch'")
                        else "'%s'" % v) for k, v in what.items()))


def put_all(c, calls):
    """In one transaction. Gives for each name the time after which its instants are."""
    return {name: int(last) for name, last in c.rows(
        "begin; create temp table new on commit drop as %s; select schedule, (extract(epoch from"
        " last) * 1000000)::bigint from twheel.schedule; commit" % " union all ".join(calls))}


def put(c, name, service="queue", **what):
    return put_all(c, [call(name, service, **what)])[name]


def seconds(after, until, every=1):
    """Instants of "*/every * * * * ?" for what divides 60."""
    first = (after // (every * SEC) + 1) * every * SEC
    return list(range(first, until + 1, every * SEC))


def ends(c, state="", name=None):
    """What came of instants, as {name: {us: [state of the job, ...]}}."""
    book = {}
    for tag, due, end in c.rows(
            "select tag, (extract(epoch from due) * 1000000)::bigint, state"
            " from twheel.job_delay_task_backlog where tag is not null %s %s"
            % ("and state = '%s'" % state if state else "", "and tag = '%s'" % name if name else "")):
        book.setdefault(tag, {}).setdefault(int(due), []).append(end)
    return book


def is_over(c):
    """No schedule has an instant any more, and nothing is owed."""
    return c.sql("select (select count(*) from twheel.job_schedule where state in ('active', 'wrong')) +"
                 " (select count(*) from twheel.job) + (select count(*) from twheel.queue)") == "0"


def differences(expected, book, name, state="finished"):
    """Text; empty if each instant has exactly one job that has that end, and there are no others."""
    got = book.get(name, {})
    lost = sorted(set(expected) - set(got))
    more = sorted(set(got) - set(expected))
    twice = [at for at, states in got.items() if len(states) > 1]
    other = [at for at, states in got.items() if states[0] != state]
    wrong = []
    for what, which in (("lost", lost), ("too many", more), ("twice", twice), ("not " + state, other)):
        if which:
            wrong.append("%s: %s %d of %d, as %s" % (
                name, what, len(which), len(expected),
                [time.strftime("%H:%M:%S", time.gmtime(at // SEC)) + ".%06d" % (at % SEC)
                 for at in which[:4]]))
    return "; ".join(wrong)


def compare(c, expected, seconds_to_wait=60, state="finished"):
    """Of what is expected for each schedule, when all of it is over."""
    if not c.wait(lambda: is_over(c), seconds_to_wait):
        return "it does not end: %s" % c.rows("select * from twheel.job_schedule")[:3]
    book = ends(c)
    wrong = [differences(instants, book, name, state) for name, instants in expected.items()]
    wrong += ["%s: of no schedule" % name for name in set(book) - set(expected)]
    late = sorted(float(x) for x, in c.rows(
        "select extract(epoch from e.at - b.due) * 1000 from twheel.backlog b"
        " join twheel.job_delay_task_execlog e on e.job = b.job"
        " and e.outcome in ('done', 'handed over') where b.tag is not null"))
    if late:
        print("# %d instants, begun late by p50 %.1f, p99 %.1f, most %.1f ms" % (
            len(late), late[len(late) // 2], late[len(late) * 99 // 100], late[-1]))
    return "; ".join(w for w in wrong if w)


class Editor:
    """Edits schedules, one after the other, in a thread of its own until the end of a block;
    whatever becomes of PostgreSQL. "done" has (time when it was answered, name, which edit)."""

    def __init__(self, c, names, edit, pause_s=0.1):
        self.c, self.names, self.edit, self.pause_s = c, names, edit, pause_s
        self.done, self.nr, self.stopping = [], 0, False
        self.threads = [threading.Thread(target=self.run, args=(name,), daemon=True)
                        for name in names[:8]]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *args):
        self.stopping = True
        for thread in self.threads:
            thread.join()

    def run(self, name):
        nr = 0
        while not self.stopping:
            psql = subprocess.Popen(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d",
                                     self.c.conninfo()], text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            try:
                while not self.stopping:
                    nr += 1
                    psql.stdin.write(self.edit(name, nr).rstrip(";") + " \\g /dev/null\n" + CLOCK)
                    psql.stdin.flush()
                    answer = psql.stdout.readline().strip()
                    if not answer:
                        break
                    self.done.append((int(answer), name, nr))
                    self.nr += 1
                    time.sleep(self.pause_s)
            except (OSError, ValueError):
                pass
            psql.kill()
            psql.wait()
            time.sleep(0.1)


CLOCK = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint;\n"
