# SPDX-License-Identifier: GPL-2.0
"""Two nodes, one shard, one job: leases, fences, hand-over to a queue, calls by HTTP.

A step is a statement as PostgreSQL executes it, or what a node does between two of them. Any may
come late: a pause is that nothing of a node is chosen for a while. That a node is taken for dead
only when its own lease is over is what lease.py is about; here it is a step of its own."""

from typing import NamedTuple

from explore import Wrong

QUEUE, HTTP = "queue", "http"
MAX_ATTEMPTS = 2
MAX_MARKS = 3   # there it ends, if attempts are not counted
DEADLINE = 9    # the due of a row that is running

RULES = {
    "join": "a batch is joined with its shards by owner and fence",
    "fence": "who takes a shard makes its fence greater",
    "state": "a batch takes only what is in state 0",
    "due": "a batch takes a job only with the due that the node knew",
    "clock": "a batch takes only what is due by the database's clock",
    "match": "due, state and the database's clock are in the match of a batch",
    "one": "hand-over deletes and inserts in one statement",
    "look": "the lease is looked at once more before the first byte is written",
    "given_up": "nothing is written once the deadline of the attempt is over",
    "attempt": "a mark counts the attempt",
    "used": "an attempt that did not begin stays used up",
    "mark": "a call is marked before it is made",
    "record": "a result is recorded for the attempt, as it is running",
    "over": "an attempt is overdue by the database's clock",
    "leave": "who takes over leaves running jobs alone until their due",
    "expire": "the owner takes up what is overdue",
    "forget": "who was taken for dead forgets all and joins under another uuid",
    "end": "who joins anew does not write what it has not written",
    "cancel": "a cancel takes only what is in state 0",
    "move": "a move takes only what is in state 0",
    "beat": "a shard is taken only while the beat of its owner is the one that was seen",
}


def at_time(due):
    """When a due is: 1, pushed later 2; that of a retry is at once."""
    return due if due < 3 else 0


class Node(NamedTuple):
    inc: int = 0            # which start of it this is: makes its uuid
    alive: bool = True
    valid: bool = True      # its lease, as it would find it now
    gone: bool = False      # its row is: it was taken for dead
    clock: int = 0          # 1: early
    own: int = 0            # the fence of the shard, as it believes; 0 if it has not got it
    taking: int = -1        # a take is under way: from this owner
    mem: tuple = ()         # the row as it knows it
    stmt: tuple = ()        # under way: kind, uuid, fence, due or attempt, answer or None
    orphan: tuple = ()      # one of a connection that was lost: may be executed still
    call: tuple = ()        # attempt, fence, due, phase, which mark it comes of


MARKED, CHECKED, SENT, GOOD, BAD, NOTHING = range(6)


class State(NamedTuple):
    faults: int
    client: str             # what it may do yet
    now: int = 0
    row: tuple = (0, 1, 0)  # state, due, attempt; () if it is gone
    at: int = 1
    marks: int = 0          # how many there were: attempts, as they are in truth
    over: int = 0           # the deadlines of so many of them are over
    owner: int = 1
    fence: int = 1
    end: str = ""           # how the row ended
    handed: int = 0
    good: int = 0           # bits of marks whose call the consumer has done
    excused: int = 0        # and of those that may be repeated
    nodes: tuple = ()


class Model:
    def __init__(self, kind, rules, faults, client="", kinds="klcap"):
        self.kind, self.rules, self.faults, self.client, self.kinds = (
            kind, rules, faults, client, kinds)

    def first(self):
        now = 0 if "m" in self.client else 1
        return State(self.faults, self.client, now=now, nodes=(Node(own=1), Node()))

    def done(self, s):
        return (not s.row and s.end not in ("", "deleted")) or s.marks == MAX_MARKS

    def wrong(self, s):
        if s.handed > 1:
            return "3: two rows in the queue"
        if not s.row and not s.end:
            return "1: the job is lost"
        if self.kind == HTTP and s.end == "done" and not s.good:
            return "1: recorded as done, and the consumer has not done it"
        if s.end == "failed" and s.good & ~s.excused:
            return "4: recorded as failed, and the consumer has done it"
        return None

    def steps(self, s):
        if s.marks == MAX_MARKS:
            return
        if s.now < 2:
            yield "time passes", False, s._replace(now=s.now + 1)
        if s.row and s.row[0] == 1 and s.over < s.marks and s.now >= s.at:
            excused = s.excused
            for n in s.nodes:
                if n.call and n.call[3] in (CHECKED, SENT, GOOD) and n.call[4] == s.marks:
                    excused |= 1 << n.call[4]
            yield "the deadline of attempt %d is over" % s.row[2], False, s._replace(
                over=s.marks, excused=excused)
        yield from self.client_steps(s)
        for i, n in enumerate(s.nodes):
            yield from self.node_steps(s, i, n, "AB"[i])

    def client_steps(self, s):
        if "m" in s.client and (s.row and s.row[0] == 0 or s.row and "move" not in self.rules):
            yield "client: pushed later, answered 200", False, s._replace(
                client=s.client.replace("m", ""), row=(s.row[0], 2, s.row[2]), at=2)
        if "c" in s.client and s.row and (s.row[0] == 0 or "cancel" not in self.rules):
            yield "client: cancelled, answered 200", False, s._replace(
                client=s.client.replace("c", ""), row=(), end="cancelled")

    def node_steps(self, s, i, n, name):
        def to(what, node=None, fault=False, **more):
            nodes = s.nodes if node is None else (
                (node, s.nodes[1]) if i == 0 else (s.nodes[0], node))
            return (name + ": " + what, fault,
                    s._replace(nodes=nodes, faults=s.faults - fault, **more))

        uuid = 2 * n.inc + i + 1
        if n.orphan:
            for what, more in self.execute(s, n.orphan, name + ": a lost connection's "):
                yield to("a lost connection's " + what, n._replace(orphan=()), **more[0])
            yield to("a lost connection's statement never comes", n._replace(orphan=()))
        if not n.alive:
            yield to("starts again", Node(inc=n.inc + 1, orphan=n.orphan))
            return
        yield from self.lease_steps(s, n, uuid, to)
        yield from self.job_steps(s, n, uuid, name, to)
        if n.call:
            yield from self.call_steps(s, n, name, to)
        if s.faults:
            yield from self.fault_steps(s, n, to)

    def lease_steps(self, s, n, uuid, to):
        if not n.valid and n.gone and "forget" in self.rules:
            call = n.call
            if call and call[3] == MARKED and "end" in self.rules:
                call = call[:3] + (NOTHING, call[4])
            if not n.orphan or not n.stmt:
                yield to("joins anew", Node(inc=n.inc + 1, clock=n.clock, call=call,
                                            orphan=n.stmt if n.stmt and n.stmt[4] is None
                                            else n.orphan))
        elif not n.valid:
            yield to("beats again", n._replace(valid=True))
        truth = s.fence if s.owner == uuid else 0
        if n.own != truth:
            # From its beat or a batch. What it knew is of another tenure.
            yield to("learns that it has fence %d" % truth if truth else "learns that it lost it",
                     n._replace(own=truth, mem=()))
        if n.taking < 0:
            if n.valid and s.owner != uuid and not self.lives(s):
                yield to("takes its owner for dead, asks for the shard", n._replace(taking=s.owner))
            return
        new = n._replace(taking=-1)
        if s.owner == n.taking and not (self.lives(s) and "beat" in self.rules):
            what, fault, state = to("has the shard", new, owner=uuid,
                                    fence=s.fence + ("fence" in self.rules))
            yield what, fault, state._replace(nodes=tuple(
                o._replace(gone=True) if s.owner == 2 * o.inc + i + 1 else o
                for i, o in enumerate(state.nodes)))
        else:
            yield to("does not get the shard", new)

    @staticmethod
    def lives(s):
        for i, n in enumerate(s.nodes):
            if s.owner == 2 * n.inc + i + 1:
                return n.alive and n.valid
        return False

    def job_steps(self, s, n, uuid, name, to):
        if n.stmt:
            if n.stmt[4] is None:
                for what, more in self.execute(s, n.stmt, name + ": "):
                    yield to(what, n._replace(stmt=n.stmt[:4] + (more[1],)), **more[0])
            else:
                yield to("gets the answer", self.answered(n))
            return
        if n.call and n.call[3] in (GOOD, BAD, NOTHING):
            kind = {GOOD: "good", BAD: "bad", NOTHING: "nothing"}[n.call[3]]
            yield to("sends the record of attempt %d: %s" % (n.call[0], kind),
                     n._replace(stmt=(kind, uuid, n.own, n.call[:3], None)))
        if n.call or not n.own:
            return
        if s.row and n.mem != s.row:
            yield to("looks", n._replace(mem=s.row))
        if not n.mem or not n.valid:
            return
        state, due, attempt = n.mem
        lead = self.kind == HTTP
        if state == 0 and (at_time(due) <= s.now + lead + (n.clock > 0)):
            yield to("sends the " + ("mark" if lead else "hand-over"),
                     n._replace(stmt=("fire", uuid, n.own, due, None)))
        early = n.clock > 0 or "leave" not in self.rules
        if state == 1 and "expire" in self.rules and (s.over >= s.marks or early):
            yield to("sends that attempt %d is overdue" % attempt,
                     n._replace(stmt=("overdue", uuid, n.own, (attempt,), None)))

    def execute(self, s, stmt, who):
        """Yields (what, (changes, answer))."""
        kind, uuid, fence, arg, _ = stmt
        rules = self.rules
        if kind == "insert":
            yield "row is inserted", (dict(handed=s.handed + 1, end="done"), 0)
            return
        if kind == "fire":
            yield self.execute_fire(s, uuid, fence, arg, who)
            return
        row = s.row
        if "record" in rules:
            hit = row and row[0] == 1 and row[2] == arg[0]
        else:
            hit = row
        if kind == "overdue" and "over" in rules and "leave" in rules:
            hit = hit and s.over >= s.marks
        if not hit:
            yield "%s: nothing is changed" % kind, ({}, 0)
        elif kind == "good":
            yield "recorded as done", (dict(row=(), end="done"), 1)
        elif kind == "nothing":
            used = "used" in rules
            yield "recorded as not begun", (
                dict(row=(0, arg[2], row[2] - (not used))), 1)
        elif row[2] >= MAX_ATTEMPTS:
            yield "%s: recorded as failed" % kind, (dict(row=(), end="failed"), 1)
        else:
            yield "%s: to be tried again" % kind, (dict(row=(0, 2 + row[2], row[2])), 1)

    def execute_fire(self, s, uuid, fence, due, who):
        rules, row = self.rules, s.row
        what = "hand-over" if self.kind == QUEUE else "mark"
        if ("join" in rules and (s.owner != uuid or s.fence != fence)) or not row:
            return what + " takes nothing", ({}, 0)
        if (("state" in rules and row[0] != 0) or ("due" in rules and row[1] != due) or
                ("clock" in rules and (row[0] == 0 and
                                       at_time(row[1]) > s.now + (self.kind == HTTP)))):
            return what + " takes nothing", ({}, 0)
        if s.owner != uuid or self.stale(s, uuid, fence):
            raise Wrong("7: fired in a tenure that is over", who + what)
        if self.kind == QUEUE:
            if s.now < s.at:
                raise Wrong("2: fired early", who + what)
            if "one" not in rules:
                return "deletes the row", (dict(row=(), end="deleted"), -1)
            return "hand-over", (dict(row=(), handed=s.handed + 1, end="done"), 1)
        attempt = row[2] + ("attempt" in rules)
        if "mark" not in rules:
            return "reads the row", (dict(marks=s.marks + 1), (row[2] + 1, row[1], s.marks + 1))
        return "mark of attempt %d" % attempt, (
            dict(row=(1, DEADLINE, attempt), marks=s.marks + 1), (attempt, row[1], s.marks + 1))

    def stale(self, s, uuid, fence):
        """Without greater fences a node cannot tell tenures apart, so nothing can."""
        return "fence" in self.rules and s.fence != fence

    def answered(self, n):
        kind, uuid, fence, due, answer = n.stmt
        n = n._replace(stmt=(), mem=())
        if kind != "fire":
            return n._replace(call=())
        if answer == -1:
            return n._replace(stmt=("insert", uuid, fence, due, None))
        if self.kind == QUEUE or not answer:
            return n
        return n._replace(call=(answer[0], fence, answer[1], MARKED, answer[2]))

    def call_steps(self, s, n, name, to):
        attempt, fence, due, phase, mark = n.call

        def turn(phase):
            return n._replace(call=(attempt, fence, due, phase, mark))

        if phase == MARKED:
            over = s.over >= mark and "given_up" in self.rules
            if over or (not n.valid and "look" in self.rules):
                yield to("does not write attempt %d" % attempt, turn(NOTHING))
            elif at_time(due) <= s.now:
                self.write(s, n, name, False)
                yield to("writes attempt %d" % attempt, turn(SENT))
                if s.faults and "p" in self.kinds:
                    yield to("is paused between the last look and the write", turn(CHECKED), True)
        elif phase == CHECKED:
            self.write(s, n, name, True)
            yield to("writes attempt %d, late" % attempt, turn(SENT))
        elif phase == SENT:
            yield to("the consumer does attempt %d" % attempt, turn(GOOD),
                     good=s.good | 1 << mark)
            yield to("the consumer fails attempt %d" % attempt, turn(BAD))
            if s.over >= mark:
                yield to("gives attempt %d up" % attempt, turn(BAD))

    def write(self, s, n, name, late):
        attempt, fence = n.call[:2]
        what = "%s: writes attempt %d" % (name, attempt)
        twice = s.good & ~s.excused
        for other in s.nodes:
            if other is not n and other.call and other.call[3] in (SENT, GOOD):
                twice |= (1 << other.call[4]) & ~s.excused
        if not late and s.now < s.at:
            raise Wrong("2: fired early", what)
        if not late and s.end == "cancelled":
            raise Wrong("5: started after a cancel was answered 200", what)
        if not late and twice:
            raise Wrong("4: called twice, and nothing excuses it", what)
        if late and (twice or s.end == "cancelled" or s.now < s.at) and fence >= s.fence:
            raise Wrong("5: called late, and the fence does not show it", what)

    def fault_steps(self, s, n, to):
        k = self.kinds
        excused = s.excused
        if n.call and n.call[3] in (CHECKED, SENT, GOOD):
            excused |= 1 << n.call[4]
        if "k" in k:
            orphan = n.stmt if n.stmt and n.stmt[4] is None else n.orphan
            yield to("is killed", Node(inc=n.inc, alive=False, valid=False, orphan=orphan), True,
                     excused=excused)
        if "l" in k and n.valid:
            yield to("its lease lapses", n._replace(valid=False), True)
        if "c" in k and not n.clock:
            yield to("its clock is early", n._replace(clock=1), True)
        if "s" in k and n.stmt and not n.orphan:
            sent = n._replace(orphan=n.stmt if n.stmt[4] is None else (), stmt=(), mem=())
            yield to("loses its connection", sent, True)
        if "a" in k and n.call and n.call[3] in (SENT, GOOD):
            good = s.good | 1 << n.call[4]
            yield to("the answer of attempt %d is lost" % n.call[0], n._replace(
                call=n.call[:3] + (BAD, n.call[4])), True, good=good, excused=excused)
