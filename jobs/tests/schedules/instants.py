# SPDX-License-Identifier: GPL-2.0
"""Each instant gives exactly one job, whatever is killed and edited."""

import random
import signal
import time

from ledger import SEC, call, clock, compare, put, put_all, seconds, stamp
from suite import test


def fill(c, nr, length_s, service="queue", **what):
    """So many schedules, each second or two, which end; and what they should fire."""
    what.setdefault("misfire", "ignore")
    end = clock(c) // SEC * SEC + length_s * SEC
    every = {"%s%d" % (service, i): 1 + i % 2 for i in range(nr)}
    lasts = put_all(c, [call(name, service, cron="*/%d * * * * ?" % s, end_at=stamp(end), **what)
                        for name, s in every.items()])
    return {name: seconds(lasts[name], end, s) for name, s in every.items()}


@test("each instant of a schedule gives one job")
def plain(c):
    expected = fill(c, 6, 8)
    expected.update(fill(c, 6, 8, "http"))
    return compare(c, expected)
