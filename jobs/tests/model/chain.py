# SPDX-License-Identifier: GPL-2.0
"""A schedule, and the two nodes that plan it: each instant is to have one job (plan.c).

A step is a statement as PostgreSQL executes it. Time is a few ticks: an instant is to be planned
two ticks before, up to three are planned together, and a call begins a tick before it is due.
Time stands still while the owner of the shard has something to do, but for faults: then an instant
may be planned late, but not be lost. No instant has misfired.

One thing is known not to hold, and is not asked for: if tzdata changes within seconds of an edit
that leaves the times as they are, an instant is lost that only the new tzdata has, and that is
before the first one that was taken back. "last" would have to be set back to now by such an edit,
and then instants would have jobs again that somebody has cancelled."""

from typing import NamedTuple

END = 6                 # the last tick
NEVER = 9
ALIKE, RETIMED = 0, 1   # what an edit may do
INSTANTS = {            # by the times that the schedule says, and the version of tzdata
    (0, 0): (2, 4), (1, 0): (3, 4, 5), (0, 1): (3, 5, 6), (1, 1): (2, 4, 6),
}

RULES = {
    "last": "a plan is written only if \"last\" is the one it was computed from",
    "timing": "a plan is written only if the version of the times is the one",
    "one": "jobs and \"last\" are written by one statement",
    "held": "a plan joins the shards that the node holds",
    "lock": "an edit has the row locked before it takes back what is planned",
    "back": "an edit takes back what is planned and has not begun",
    "first": "an edit sets \"last\" back to before the first instant that was taken back",
    "begun": "with other times \"last\" is behind what has begun",
    "behind": "as long as an instant up to now is not planned \"last\" stays",
    "next": "an edit has the schedule looked at at once",
    "paused": "what is paused is not planned",
    "review": "schedules with a zone are looked at when tzdata changes",
    "taken": "and when a shard is taken",
    "replan": "what is planned and is no instant any more is taken back",
}


class Row(NamedTuple):
    last: int = 0
    next: int = 2
    timing: int = 0
    times: int = 0
    paused: bool = False


class Node(NamedTuple):
    zone: int = 0
    review: bool = False
    stmt: tuple = ()    # kind, timing, last, and of a plan: until, next, instants


class State(NamedTuple):
    faults: int
    client: str         # what it may do yet
    now: int = 0
    row: Row = Row()    # None if it was deleted
    jobs: tuple = ()    # (instant, has it begun), sorted
    owed: tuple = INSTANTS[0, 0]
    prompt: int = 0     # instants behind this are to be planned in time
    owner: int = 0
    zone: int = 0
    edit: tuple = ()    # one without a lock is under way: kind, free, taken
    nodes: tuple = (Node(), Node())


def after(instants, last):
    return next((at for at in instants if at > last), NEVER)


class Model:
    def __init__(self, rules, faults, client):
        self.rules = rules
        self.start = State(faults, client)

    def first(self):
        return self.start

    def mixed(self, s):
        """Whether not all nodes have the tzdata that there is."""
        return any(node.zone != s.zone for node in s.nodes)

    def wrong(self, s):
        ats = [at for at, _ in s.jobs]
        if len(set(ats)) < len(ats):
            return "6: two jobs of an instant"
        waiting = [at for at, begun in s.jobs if not begun and at > max(s.now, s.prompt)]
        if not s.edit and not s.row and waiting:
            return "6: a job of a schedule that was deleted"
        if s.edit or not s.row or self.mixed(s) or self.busy(s):
            return None
        if s.row.paused and waiting:
            return "6: a job is to begin, and the schedule is paused"
        if any(at not in INSTANTS[s.row.times, s.zone] for at in waiting):
            return "6: a job is to begin at a time that is none of the schedule"
        if not s.row.paused and any(s.prompt < at <= s.now and at not in ats for at in s.owed):
            return "6: an instant is planned too late"
        return None

    def done(self, s):
        begun = [at for at, is_begun in s.jobs if is_begun]
        return s.now == END and len(begun) == len(s.jobs) and (
            (s.row and s.row.paused) or all(at in begun for at in s.owed))

    def busy(self, s):
        """Whether the owner has something to do."""
        node = s.nodes[s.owner]
        return node.review or node.stmt or (
            s.row and not s.row.paused and s.row.next <= s.now + 2)

    # ------------------------------------------------------------------ statements

    def unplan(self, s):
        """Returns the jobs that are left, since when none is planned, and the first taken back."""
        free = s.now
        if "begun" in self.rules:
            free = max([free] + [at for at, begun in s.jobs if begun])
        taken = [at for at, begun in s.jobs if at > free and not begun]
        if "back" not in self.rules:
            taken = []
        jobs = tuple(job for job in s.jobs if job[1] or job[0] not in taken)
        return jobs, free, min(taken) if taken else None

    def edited(self, s, what, free, taken):
        row = s.row
        last, next_at = row.last, row.next
        if what == RETIMED:
            last = free
            if row.next <= free and not row.paused and "behind" in self.rules:
                last = min(row.last, free)
        elif taken is not None and "first" in self.rules:
            last = min(row.last, taken - 1)
        if "next" in self.rules:
            next_at = NEVER if row.paused else -1
        return row._replace(last=last, next=next_at, timing=row.timing + (what == RETIMED),
                            times=row.times ^ (what == RETIMED))

    def owe(self, s):
        """What is owed once the schedule has the other times."""
        ats = {at: begun for at, begun in s.jobs}
        since = max([s.now] + [at for at in ats if ats[at]])
        if not s.row.paused and any(at not in ats for at in s.owed if at <= s.now):
            since = s.row.last
        return self.kept(s) + self.later(s, s.row.times ^ 1, since)

    def kept(self, s):
        """Of what is owed that which is planned, and is due or has begun."""
        return tuple(at for at, begun in s.jobs if at in s.owed and (begun or at <= s.now))

    def later(self, s, times, since):
        """Of the instants those behind a time, once all nodes would compute the same ones."""
        return () if self.mixed(s) else tuple(
            at for at in INSTANTS[times, s.zone] if at > since)

    def plan(self, s, node, last):
        row = s.row
        instants = INSTANTS[row.times, node.zone]
        made = tuple(at for at in instants if last < at <= s.now + 3)
        until = made[-1] if made else last
        return "plan", row.timing, row.last, until, after(instants, until), made

    def execute(self, s, i, stmt):
        """What a statement of a node leaves."""
        kind, timing, last = stmt[:3]
        row = s.row
        if not row or (row.timing != timing and "timing" in self.rules) or (
                row.last != last and "last" in self.rules):
            return s
        if kind == "replan":
            jobs, free, _ = self.unplan(s)
            return s._replace(jobs=jobs, row=row._replace(last=free, next=-1,
                                                          timing=row.timing + 1))
        if (row.paused and "paused" in self.rules) or (
                s.owner != i and "held" in self.rules):
            return s
        until, next_at, made = stmt[3:]
        return s._replace(row=row._replace(last=until, next=next_at), jobs=tuple(sorted(
            s.jobs + tuple((at, False) for at in made))))

    # ----------------------------------------------------------------------- steps

    def of_node(self, s, i):
        node, name = s.nodes[i], "AB"[i] + ": "

        def to(state=s, **changes):
            nodes = list(state.nodes)
            nodes[i] = nodes[i]._replace(**changes)
            return state._replace(nodes=tuple(nodes))

        if node.stmt:
            done = to(self.execute(s, i, node.stmt), stmt=())
            yield name + "%s is executed, of %s" % (node.stmt[0], node.stmt[-1]), False, done
            if "one" not in self.rules and done.row != s.row:
                yield name + "only jobs are written", True, done._replace(
                    row=s.row, faults=s.faults - 1)
        elif s.owner == i and s.row:
            if node.review:
                yield name + "reviews", False, to(
                    s._replace(prompt=max(s.prompt, s.now + 1)), review=False,
                    stmt=self.review(s, node))
            elif not s.row.paused and s.row.next <= s.now + 2:
                yield name + "looks", False, to(stmt=self.plan(s, node, s.row.last))
        elif node.review:
            yield name + "reviews nothing", False, to(review=False)
        if node.zone != s.zone:
            found = to(zone=s.zone, review="review" in self.rules)
            found = found._replace(prompt=max(s.prompt, s.now + 1))
            if s.row:
                found = found._replace(
                    owed=s.owed + self.later(found, s.row.times, s.now + 1))
            yield name + "finds the new tzdata", False, found

    def review(self, s, node):
        instants = INSTANTS[s.row.times, node.zone]
        planned = [at for at, begun in s.jobs if not begun and at > s.now + 1]
        if any(at not in instants for at in planned) and "replan" in self.rules:
            return "replan", s.row.timing, s.row.last
        if not s.row.paused and after(instants, s.row.last) != s.row.next:
            return self.plan(s, node, s.row.last)
        return ()

    def of_client(self, s):
        for what in sorted(set(s.client)):
            left = s._replace(client=s.client.replace(what, "", 1))
            row = s.row
            if what == "z":
                # What is owed of the new ones is known when all have found them.
                yield "tzdata changes", False, left._replace(
                    zone=1, owed=self.kept(s))
            elif row and what == "d":
                yield "the schedule is deleted", False, left._replace(
                    row=None, jobs=self.unplan(s)[0], owed=self.kept(s))
            elif row and what in "et" and not s.edit:
                kind = RETIMED if what == "t" else ALIKE
                if kind == RETIMED:
                    left = left._replace(owed=self.owe(s))
                jobs, free, taken = self.unplan(s)
                left = left._replace(jobs=jobs)
                name = "an edit of %s" % ("the times" if kind == RETIMED else "the payload")
                if "lock" in self.rules:
                    yield name, False, left._replace(row=self.edited(s, kind, free, taken))
                else:
                    yield name + " takes back", False, left._replace(edit=(kind, free, taken))
            elif row and what == "p" and not row.paused and not s.edit:
                jobs, free, taken = self.unplan(s)
                yield "it is paused", False, left._replace(
                    jobs=jobs, row=self.edited(s, ALIKE, free, taken)._replace(
                        next=NEVER, paused=True))
            elif row and what == "r" and row.paused and not s.edit:
                yield "it is resumed", False, left._replace(
                    prompt=s.now, row=self.edited(s, ALIKE, s.now, None)._replace(
                        paused=False, next=-1))

    def steps(self, s):
        for i in (0, 1):
            yield from self.of_node(s, i)
        yield from self.of_client(s)
        if s.edit:
            yield "the row is written", False, s._replace(edit=(), row=self.edited(s, *s.edit))
        for k, (at, begun) in enumerate(s.jobs):
            if not begun and at <= s.now + 1:
                jobs = s.jobs[:k] + ((at, True),) + s.jobs[k + 1:]
                yield "the job of %d begins" % at, False, s._replace(jobs=jobs)
        if s.now < END and not self.busy(s):
            yield "a tick", False, s._replace(now=s.now + 1)
        if not s.faults:
            return
        s = s._replace(faults=s.faults - 1)
        if s.now < END:
            yield "a tick, and the owner has paused", True, s._replace(
                now=s.now + 1, prompt=s.now + 1)
        nodes = list(s.nodes)
        nodes[1 - s.owner] = nodes[1 - s.owner]._replace(review="taken" in self.rules)
        yield "%s takes the shard" % "AB"[1 - s.owner], True, s._replace(
            owner=1 - s.owner, nodes=tuple(nodes))
