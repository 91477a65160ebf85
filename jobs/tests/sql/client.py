# SPDX-License-Identifier: GPL-2.0
"""As much of PostgreSQL's protocol as the tests need, over a socket: simple queries."""

import select
import socket
import struct


class Error(Exception):
    def __init__(self, fields):
        super().__init__("%s: %s" % (fields["C"], fields["M"]))
        self.state = fields["C"]
        self.message = fields["M"]


class Session:
    def __init__(self, path, user, database):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.notifications = []
        words = b"".join(s.encode() + b"\0" for s in ("user", user, "database", database))
        self.socket.sendall(struct.pack("!ii", len(words) + 9, 196608) + words + b"\0")
        self.answer()
        self.pid = int(self.value("select pg_backend_pid()"))

    def close(self):
        self.socket.close()

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise EOFError("the server has gone")
            data += more
        return data

    def message(self):
        kind, length = struct.unpack("!ci", self.read(5))
        return kind, self.read(length - 4)

    def send(self, sql):
        """Begins a query; answer() waits for its end."""
        sql = sql.encode() + b"\0"
        self.socket.sendall(struct.pack("!ci", b"Q", len(sql) + 4) + sql)

    def answer(self):
        rows, error = [], None
        while True:
            kind, data = self.message()
            if kind == b"Z":
                break
            if kind == b"E":
                error = Error({f[:1].decode(): f[1:].decode() for f in data.split(b"\0") if f})
                if error.state.startswith("57P") or error.state.startswith("28"):
                    break
            elif kind == b"T":
                rows = []
            elif kind == b"D":
                rows.append(self.row(data))
            elif kind == b"A":
                channel, payload = data[4:].split(b"\0")[:2]
                self.notifications.append((channel.decode(), payload.decode()))
        if error:
            raise error
        return rows

    @staticmethod
    def row(data):
        at, row = 2, []
        for _ in range(struct.unpack("!h", data[:2])[0]):
            (length,) = struct.unpack("!i", data[at:at + 4])
            at += 4
            row.append(None if length < 0 else data[at:at + length].decode())
            at += max(length, 0)
        return tuple(row)

    def ready(self):
        """Is there anything of an answer?"""
        return bool(select.select([self.socket], [], [], 0)[0])

    def rows(self, sql):
        self.send(sql)
        return self.answer()

    def value(self, sql):
        rows = self.rows(sql)
        return rows[0][0] if rows else None

    def column(self, sql):
        return [row[0] for row in self.rows(sql)]

    def state(self, sql):
        """The error of a query; None if it has none."""
        try:
            self.rows(sql)
        except Error as error:
            return error.state
        return None
