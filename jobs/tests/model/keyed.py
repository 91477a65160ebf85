# SPDX-License-Identifier: GPL-2.0
"""A keyed submit whose answer the client may not get, so that it repeats it, by two nodes."""

from typing import NamedTuple

RULES = {
    "seen": "keys outlive their jobs",
    "owed": "a key is not forgotten while its job is owed",
    "unique": "who submits a key waits for whoever has it",
    "commit": "201 is answered after the commit",
}


class State(NamedTuple):
    jobs: int = 0           # that there ever were
    owed: int = 0
    key: bool = False
    fresh: bool = False     # less than a day since it was to be done
    open: tuple = (0, 0)    # of each node: 0 nothing, 1 inserted, 2 found it, 3 answered
    told: bool = False      # 201
    faults: int = 2


class Model:
    def __init__(self, rules):
        self.rules = rules

    def first(self):
        return State()

    def wrong(self, s):
        if s.jobs > 1:
            return "1: two jobs of a key"
        if s.told and not s.jobs:
            return "1: 201 was answered, and there is no job"
        return None

    def done(self, s):
        return not s.owed

    def steps(self, s):
        for i in (0, 1):
            name, mine = "AB"[i] + ": ", s.open[i]

            def to(value):
                return (value, s.open[1]) if i == 0 else (s.open[0], value)

            other = s.open[1 - i] == 1
            if mine == 0 and not (other and "unique" in self.rules):
                known = s.key and (s.fresh or (s.owed and "owed" in self.rules))
                yield (name + ("finds the key" if known else "inserts the job"), False,
                       s._replace(open=to(2 if known else 1)))
            if mine == 1:
                before = s.jobs if s.fresh or s.owed else 0     # a day after it may be anew
                yield name + "commits", False, s._replace(
                    open=to(3), jobs=before + 1, owed=s.owed + 1, key=True, fresh=True, told=True)
                if "commit" not in self.rules:
                    yield name + "answers 201", False, s._replace(told=True)
                if s.faults:
                    yield name + "PostgreSQL is killed", True, s._replace(
                        open=to(0), faults=s.faults - 1)
            if mine == 2:
                yield name + "answers 200", False, s._replace(open=to(3))
            if mine == 3 and s.faults:
                yield name + "the answer is lost, the client repeats it", True, s._replace(
                    open=to(0), faults=s.faults - 1)
        if s.owed:
            yield "the job is done", False, s._replace(
                owed=s.owed - 1, key="seen" in self.rules or s.owed > 1)
        if s.fresh and s.owed and s.faults:
            yield "the job is a day late", True, s._replace(fresh=False, faults=s.faults - 1)
