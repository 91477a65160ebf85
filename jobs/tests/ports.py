#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Free TCP ports on loopback, which nobody else gets before they are used: the kernel gives
others, for connections that leave, from a range of its own. As a program: prints so many."""

import random
import socket
import sys


def free_port():
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        first, last = map(int, f.read().split())
    ports = [port for port in range(10000, 65536) if not first <= port <= last]
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", random.choice(ports)))
                return s.getsockname()[1]
            except OSError:
                pass


if __name__ == "__main__":
    print(*(free_port() for _ in range(int(sys.argv[1]))))
