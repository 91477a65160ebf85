# SPDX-License-Identifier: GPL-2.0
"""Lines that lose packets: PostgreSQL is in a network namespace, and a node reaches it by TCP."""

import contextlib
import fcntl
import os
import queue
import random
import select
import struct
import subprocess
import threading
import time

from suite import Skip, check, fill_socket, is_freed, load, test

TUNSETIFF = 0x400454ca
IFF_TUN_NO_PI = 0x1001


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Wire:
    """Between this namespace and another one, by packets. "up" is what comes from here. What is
    cut is dropped, and nobody is told. No kernel needs netem for that."""

    def __init__(self):
        nr = os.getpid() & 0x3fff
        self.name = "twheel%d" % nr
        self.here, self.there = ("10.%d.%d.%d" % (77 + (nr >> 8), nr & 255, i) for i in (1, 2))
        self.cut = {"up": False, "down": False}
        self.delay = self.loss = 0.0
        self.closed = False
        self.fds = []
        ip("netns", "add", self.name)
        try:
            for side, address in ("a", self.here), ("b", self.there):
                self.fds.append(self.interface("tw%d%s" % (nr, side), address, side == "b"))
        except BaseException:
            self.close()
            raise
        for way, a, b in ("up", *self.fds), ("down", *reversed(self.fds)):
            line = queue.Queue()
            threading.Thread(target=self.read, args=(way, a, line), daemon=True).start()
            threading.Thread(target=self.write, args=(b, line), daemon=True).start()

    def interface(self, name, address, away):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN_NO_PI))
        where = ["-n", self.name] if away else []
        if away:
            ip("link", "set", name, "netns", self.name)
            ip(*where, "link", "set", "lo", "up")
        ip(*where, "address", "add", address + "/30", "dev", name)
        ip(*where, "link", "set", name, "up")
        return fd

    def read(self, way, fd, line):
        while not self.closed:
            if not select.select([fd], [], [], 0.2)[0]:
                continue
            try:
                packet = os.read(fd, 65536)
            except OSError:
                return
            if not self.cut[way] and random.random() >= self.loss:
                line.put((time.monotonic() + self.delay, packet))

    def write(self, fd, line):
        while not self.closed:
            try:
                when, packet = line.get(timeout=0.2)
                time.sleep(max(0, when - time.monotonic()))
                os.write(fd, packet)
            except queue.Empty:
                pass
            except OSError:
                return

    def close(self):
        self.closed = True
        time.sleep(0.5)
        for fd in self.fds:
            os.close(fd)
        ip("netns", "del", self.name)


@contextlib.contextmanager
def wired():
    """The cluster has a wire as its tool."""
    try:
        wire = Wire()
    except (OSError, subprocess.CalledProcessError) as why:
        raise Skip("no network namespaces: %s" % why) from why
    try:
        yield {"tool": wire, "pg_options": ["-c", "listen_addresses=" + wire.there],
               "pg_prefix": ["ip", "netns", "exec", wire.name]}
    finally:
        wire.close()


def add_wired(c, user="postgres", **more):
    """A node at the other end of the wire. True when all are ready."""
    with open(os.path.join(c.pg, "data", "pg_hba.conf"), "a", encoding="utf-8") as f:
        f.write("host all all %s/30 trust\n" % c.tool.here)
    c.sql("select pg_reload_conf()")
    time.sleep(0.2)
    c.add_node(conninfo="host=%s port=5432 user=%s dbname=postgres" % (c.tool.there, user), **more)
    return c.ready()


def cut(c, way, seconds):
    if not add_wired(c):
        return "it does not get ready"
    load(c)
    time.sleep(4)
    c.tool.cut[way] = True
    time.sleep(seconds)
    c.tool.cut[way] = False
    return check(c, twice_allowed=True)


@test("a node whose packets are lost for 10 s does no harm", nodes=2, around=wired)
def cut_up(c):
    return cut(c, "up", 10)


@test("a node to which packets are lost for 10 s does no harm", nodes=2, around=wired)
def cut_down(c):
    return cut(c, "down", 10)


@test("a line that loses 5 % and takes half a second loses no jobs", nodes=0, around=wired)
def bad_line(c):
    """There and back."""
    if not (add_wired(c) and add_wired(c)):
        return "they do not get ready"
    load(c, nr=300)
    c.tool.delay, c.tool.loss = 0.25, 0.05
    c.submit(c.nodes[0], "queue", 50, 3000, 10000)
    time.sleep(25)
    c.tool.delay = c.tool.loss = 0
    return check(c, twice_allowed=True)


def full_socket(c, user):
    if not add_wired(c, user):
        return "it does not get ready"
    node = c.nodes[-1]
    uuid = fill_socket(c, node, lambda: c.tool.cut.update(down=True))
    if not uuid:
        return "no backend waits for it"
    c.tool.cut["up"] = True     # or TCP here may tell that it gave up
    load(c, nodes=c.nodes[:-1], delay_ms=0)
    freed = is_freed(c, uuid)
    c.tool.cut = {"up": False, "down": False}
    return check(c, twice_allowed=True) if freed else "its shards are not taken"


@test("what a node with a full socket has locked is freed while it is cut off", nodes=2,
      around=wired)
def full_socket_ended(c):
    return full_socket(c, "postgres")


@test("what a node of another role with a full socket has locked is freed while it is cut off",
      nodes=2, around=wired)
def full_socket_timeout(c):
    """Nobody may end its connections but PostgreSQL."""
    c.sql("create role other login in role twheel_node")
    return full_socket(c, "other")
