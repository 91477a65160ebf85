#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""100,000 time-outs in asyncio, of which most are pushed later or cancelled."""
import asyncio
import time

from twheel import Wheel

NR = 100_000


async def main():
    wheel = Wheel()
    done = asyncio.Event()
    fired = []

    def timed_out(number):
        fired.append(number)
        if len(fired) == NR // 100:
            done.set()

    begin = time.monotonic()
    timers = [wheel.arm(0.5, timed_out, number) for number in range(NR)]
    for timer in timers:
        timer.arm(1.0)
    for number, timer in enumerate(timers):
        if number % 100:
            timer.cancel()
    print(f"armed, moved and cancelled {NR} timers in {time.monotonic() - begin:.2f} s")
    await done.wait()
    assert sorted(fired) == list(range(0, NR, 100))
    print(f"the {len(fired)} that were left timed out")
    wheel.close()


asyncio.run(main())
