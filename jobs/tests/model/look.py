# SPDX-License-Identifier: GPL-2.0
"""The owner of a shard looks for jobs from the time of its last look on; an application inserts
one that is due already, in a transaction that it keeps open for as long as it likes. What is
under way at a look may have no number yet; nothing is told by notification."""

from typing import NamedTuple

RULES = {
    "number": "who writes due has a transaction number before it reads the clock",
    "clock": "a job is due no earlier than the clock",
    "running": "for what was under way at a look the next one begins where that one began",
    "before": "a look takes its time before its snapshot",
}
LAST = 4


class State(NamedTuple):
    now: int = 0
    number: bool = False
    due: int = -1
    committed: bool = False
    read: int = -1          # the clock, as the application read it
    time: int = -1          # of the look that has begun
    last: int = 0           # of the last look
    since: int = -1         # the transaction was under way then: it has no earlier due
    found: bool = False


class Model:
    def __init__(self, rules):
        self.rules = rules

    def first(self):
        return State()

    def wrong(self, s):
        return None

    def done(self, s):
        return s.found

    def steps(self, s):
        if s.now < LAST:
            yield "time passes: %d" % (s.now + 1), False, s._replace(now=s.now + 1)
        if s.read < 0 and (s.number or "number" not in self.rules):
            yield "the application reads the clock: %d" % s.now, False, s._replace(read=s.now)
        if not s.number:
            yield "its transaction has a number", False, s._replace(number=True)
        elif s.read >= 0 and s.due < 0:
            due = s.read if "clock" in self.rules else 0
            yield "inserts a job that is due at %d" % due, False, s._replace(due=due)
        elif s.due >= 0 and not s.committed:
            yield "commits", False, s._replace(committed=True)
        if s.time < 0:
            yield "a look begins at %d" % s.now, False, s._replace(time=s.now)
        else:
            yield self.look(s)

    def look(self, s):
        time = s.time if "before" in self.rules else min(s.now + 1, LAST)
        begin, since = s.last, -1
        if s.number and not s.committed:
            since = s.since if s.since >= 0 else s.last
        elif s.since >= 0 and "running" in self.rules:
            begin = min(begin, s.since)
        found = s.found or (s.committed and s.due >= begin)
        return ("it reads from %d on" % begin, False,
                s._replace(time=-1, last=time, since=since, found=found))
