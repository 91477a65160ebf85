# SPDX-License-Identifier: GPL-2.0
"""What schedules do, by looking at each minute there is."""

import datetime
import zoneinfo

UTC = datetime.timezone.utc
MINUTE = datetime.timedelta(minutes=1)
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


class Zone:
    """Each minute of a zone, as (instant, local time), and where clocks are set."""

    def __init__(self, name, begin, end):
        self.name = name
        tz = zoneinfo.ZoneInfo(name)
        self.minutes, self.changes = [], []
        at, last = begin - 2 * MINUTE, None
        while at < end:
            local = at.astimezone(tz).replace(tzinfo=None)
            offset = local - at.replace(tzinfo=None)
            if last is not None and offset != last and at >= begin:
                self.changes.append((at, last, offset))
            last = offset
            if at >= begin:
                self.minutes.append((at, local))
            at += MINUTE


def field(text, low, high):
    values = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = low, high
        values |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return values


class Cron:
    def __init__(self, text):
        words = text.split()
        self.sets = [field(w, *limits) for w, limits in zip(words, LIMITS)]
        self.real = words[0].startswith("*") or words[1].startswith("*")
        self.either = not words[2].startswith("*") and not words[4].startswith("*")

    def matches(self, local):
        minutes, hours, days, months, weekdays = self.sets
        if local.minute not in minutes or local.hour not in hours or local.month not in months:
            return False
        of_month, of_week = local.day in days, local.isoweekday() % 7 in weekdays
        return of_month or of_week if self.either else of_month and of_week

    def local_times(self, begin, end):
        """All of local time from one to the other, as if no clock were ever set."""
        found = []
        while begin < end:
            if self.matches(begin):
                found.append(begin)
            begin += MINUTE
        return found

    def instants(self, zone):
        if self.real:
            return [at for at, local in zone.minutes if self.matches(local)]
        found, seen = set(), set()
        for at, local in zone.minutes:
            # The second of two is not looked at.
            if local not in seen and self.matches(local):
                found.add(at)
            seen.add(local)
        for at, before, after in zone.changes:
            naive = at.replace(tzinfo=None)
            if after > before and self.local_times(naive + before, naive + after):
                found.add(at)
        return sorted(found)

    def effect(self, change):
        """(what, how many, first, last) of what a change of clocks does to it, or None."""
        at, before, after = change
        naive = at.replace(tzinfo=None)
        if self.real:
            return None
        low, high = min(before, after), max(before, after)
        times = self.local_times(naive + low, naive + high)
        if not times:
            return None
        return ("skipped" if after > before else "twice", len(times),
                times[0].strftime("%H:%M:%S"), times[-1].strftime("%H:%M:%S"))


def runs(instants, takes, overlap):
    """[(begin, end)] of jobs, and (how often due while one ran, most at a time, most that wait)"""
    done, busy, late, most, waiting = [], [], 0, 0, 0
    for at in instants:
        busy = [job for job in busy if job[1] > at]
        late += bool(busy)
        if not busy or overlap == "allow":
            busy.append((at, at + takes))
            done.append(busy[-1])
            most = max(most, len(busy))
        elif overlap == "queue":
            busy.append((busy[-1][1], busy[-1][1] + takes))
            done.append(busy[-1])
            waiting = max(waiting, len(busy) - 1)
    return done, (late, max(most, bool(done)), waiting)


def at_a_time(jobs):
    """How many run at the most."""
    events = sorted([(begin, 1) for begin, _ in jobs] + [(end, -1) for _, end in jobs])
    now = most = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most
