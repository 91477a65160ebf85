# SPDX-License-Identifier: GPL-2.0
"""A owns a shard and beats, B watches. Seconds pass; statements and answers come late."""

from typing import NamedTuple

RULES = {
    "sent": "a lease counts from when its last confirmed beat was sent",
    "margin": "a node stops by itself before another takes it for dead",
    "boottime": "the clock of a lease goes on while the machine is suspended",
    "same": "a node is taken for dead only if its beat is still the one that was seen",
}
VALID, DEAD, CAP = 3, 4, 5


class State(NamedTuple):
    age: int = 0            # since A sent the beat that was confirmed last
    sent: int = -1          # since it sent the one that is under way
    committed: bool = False
    seen: bool = True       # B has seen the newest beat
    same: int = 0           # for how long B has
    looking: bool = False   # B's look is under way: was there another beat?
    new: bool = False
    taking: bool = False    # B's take is
    moved: bool = False     # there is another beat than the one that B took for the last
    taken: bool = False


class Model:
    def __init__(self, rules):
        self.rules = rules

    def first(self):
        return State()

    def wrong(self, s):
        valid = VALID if "margin" in self.rules else DEAD + 1
        if s.taken and s.age < valid:
            return "7: its shard is another's, and it may begin calls"
        return None

    def done(self, s):
        return True

    def steps(self, s):
        def older(age):
            return age if age < 0 else min(age + 1, CAP)

        yield "a second passes", False, s._replace(
            age=older(s.age), sent=older(s.sent), same=older(s.same))
        if "boottime" not in self.rules:
            yield "A is suspended for a second", True, s._replace(same=older(s.same))
        if s.sent < 0 and not s.taken:
            yield "A sends a beat", False, s._replace(sent=0, committed=False)
        if s.sent >= 0 and not s.committed and not s.taken:
            yield "its beat is committed", False, s._replace(committed=True, seen=False, moved=True)
        if s.sent >= 0 and s.committed:
            age = s.sent if "sent" in self.rules else 0
            yield "its beat is confirmed", False, s._replace(age=age, sent=-1, committed=False)
        if not s.looking:
            yield "B looks", False, s._replace(looking=True, new=not s.seen, seen=True)
        else:
            yield "B has the answer", False, s._replace(
                looking=False, new=False, same=0 if s.new else s.same)
        if s.same >= DEAD and not s.taking and not s.taken and not s.new:
            yield "B takes A for dead, asks for its shards", False, s._replace(
                taking=True, moved=not s.seen)
        if s.taking:
            took = not s.moved or "same" not in self.rules
            yield "B has them" if took else "B does not get them", False, s._replace(
                taking=False, taken=took)
