# SPDX-License-Identifier: GPL-2.0
"""Requests to twheeld, right and wrong ones, and what comes of them."""

import base64
import calendar
import hashlib
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ports import free_port    # noqa: E402

FAR = "2100-01-01T00:00:00Z"
MAX_PAYLOAD = 1 << 20
nr = failed = 0
seen = []  # (method, path, status, code)


def ok(good, sentence, why=""):
    global nr, failed
    nr += 1
    print("%sok %d - %s" % ("" if good else "not ", nr, sentence), flush=True)
    if not good:
        failed += 1
        if why:
            print("# " + str(why)[:1000])
    return good


class Psql:
    """One psql for all that is asked: to start one takes longer than most tests."""
    END = "-- end --"
    process = None

    def start(self):
        program = os.path.join(os.environ.get("POSTGRES_BIN", ""), "psql")
        self.process = subprocess.Popen([program, "-XAtq", os.environ["CONNINFO"]], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, text):
        if not self.process or self.process.poll() is not None:
            self.start()
        self.process.stdin.write("%s;\n\\echo '%s'\n" % (text, self.END))
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == self.END:
                return "\n".join(lines)
            lines.append(line.rstrip("\n"))
        raise EOFError(text)

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
        self.process = None


psql = Psql()
sql = psql.ask


class Held:
    """A transaction of an application that stays open."""
    def __init__(self, text):
        program = os.path.join(os.environ.get("POSTGRES_BIN", ""), "psql")
        self.process = subprocess.Popen([program, "-XAtq", os.environ["CONNINFO"]], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdin.write("begin; %s;\n" % text)
        self.process.stdin.flush()
        self.answer = self.process.stdout.readline().strip()

    def end(self, how):
        self.process.stdin.write(how + ";\n")
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end("rollback")


def rows():
    """All that a request could have made or changed."""
    return sql("select (select md5(coalesce(string_agg((id, at, state, service, attempt, key, "
               "order_key, tag, slack_ms, length(payload))::text, '' order by id), '')) "
               "from twheel.job), "
               "(select md5(coalesce(string_agg(t::text, '' order by seq), '')) from twheel.queue t), "
               "(select count(*) from twheel.seen), (select count(*) from twheel.backlog), "
               "(select md5(coalesce(string_agg(t::text, '' order by id), '')) from twheel.service t), "
           "(select md5(coalesce(string_agg((id, schedule, service, version, cron, tz, every_ms, "
           "count, start_at, end_at, misfire, misfire_ms, overlap, broadcast, paused, slack_ms, "
           "payload)::text, '' order by id), '')) from twheel.schedule)")


def until(what, seconds=30):
    """Waits for it: only if it never comes true the time matters."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


class Node:
    def __init__(self, *options):
        self.log = []
        nodes.append(self)
        args = [os.environ["TWHEELD"]]
        for option in ("database=" + os.environ["CONNINFO"], "listen=127.0.0.1:%d" % free_port()) + options:
            args += ["-o", option]
        subprocess.run(args + ["--migrate"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, errors="replace")
        self.port = None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        until(lambda: self.port)
        until(lambda: self.ask("GET", "/readyz")[0] == 200)

    def read(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"http-listens .*port=(\d+)", line)
            if found:
                self.port = int(found.group(1))

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """The status, the JSON of the answer, and its headers."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        if body is not None and "Content-Type" not in headers:
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        try:
            value = json.loads(data)
        except ValueError:
            value = data
        code = value["error"]["code"] if isinstance(value, dict) and "error" in value else None
        seen.append((method, path.split("?")[0], answer.status, code))
        return answer.status, value, answer.headers

    def raw(self, data, timeout=60, end=True):
        """Bytes to the socket, and all that comes until it is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as s:
            s.sendall(data)
            if end:
                s.shutdown(socket.SHUT_WR)
            got = b""
            while True:
                try:
                    part = s.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    return got
                got += part
            return got

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self.thread.join(10)
        return status


def error_is(answer, status, code, field=None):
    value = answer[1]
    if answer[0] != status or not isinstance(value, dict) or set(value) != {"error"}:
        return False
    error = value["error"]
    return (error["code"] == code and isinstance(error["message"], str) and error["message"] and
            (field is None or error.get("field") == field))


def refused(node, sentence, method, path, body, status, code, field=None, headers=None):
    before = rows()
    answer = node.ask(method, path, body, headers)
    ok(error_is(answer, status, code, field) and rows() == before, sentence, answer[:2])


def us(text):
    """Of an answer's time, since 1970."""
    date, fraction = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z", text).groups()
    return calendar.timegm(time.strptime(date, "%Y-%m-%dT%H:%M:%S")) * 1000000 + int(fraction)


def payload_of(job):
    return bytes.fromhex(sql("select encode(payload, 'hex') from twheel.job where id = %d" % job))


def job(**fields):
    return {"service": "q", "at": FAR, **fields}


def test_services(node):
    for name, kind in ("q", {"kind": "queue"}), ("h", {"kind": "http",
                                                       "target": "http://127.0.0.1:9/x"}):
        status, value, _ = node.ask("PUT", "/v1/services/" + name, kind)
        ok(status == 201 and value["service"] == name and value["timeout_ms"] == 30000,
           "a service %s is made with the defaults of the table" % name, value)
    full = {"kind": "http", "target": "https://[::1]:8/a?b=c", "headers": {"X-A": "b \u00e9"},
            "timeout_ms": 3600000, "accept_ms": 2000000000, "max_attempts": 32000, "backoff_ms": 1,
            "backoff_max_ms": 86400000, "concurrency": 100000, "rate_per_s": 0.5,
            "delivery": "at_most_once", "notify": False, "paused": True}
    status, value, _ = node.ask("PUT", "/v1/services/full", full)
    ok(status == 201 and value == {"service": "full", **full},
       "every field of a service is what was put, at its bounds too", value)
    version = sql("select version from twheel.service where service = 'full'")
    status, value, _ = node.ask("PATCH", "/v1/services/full", {"rate_per_s": None, "paused": False})
    ok(status == 200 and value == {"service": "full", **full, "rate_per_s": None, "paused": False},
       "a patch changes what it says and nothing else", value)
    ok(sql("select version from twheel.service where service = 'full'") != version,
       "a service that is changed has another version")
    status, value, _ = node.ask("PUT", "/v1/services/full", {"kind": "queue"})
    ok(status == 200 and value["headers"] == {} and value["timeout_ms"] == 30000 and
       value["target"] == "", "what a put does not say is the default again", value)
    ok(node.ask("GET", "/v1/services/full")[1] == value, "a service is shown as it was put")
    names = [s["service"] for s in node.ask("GET", "/v1/services")[1]["services"]]
    ok(names == ["full", "h", "q"], "services are listed by name", names)
    names = [s["service"] for s in node.ask("GET", "/v1/services?after=full&limit=1")[1]["services"]]
    ok(names == ["h"], "services are listed in pages", names)
    ok(node.ask("DELETE", "/v1/services/full")[0] == 204, "a service without jobs can be deleted")
    refused(node, "a service that is not there cannot be shown", "GET", "/v1/services/full", None,
            404, "unknown_service")
    refused(node, "a service that is not there cannot be deleted", "DELETE", "/v1/services/full",
            None, 404, "unknown_service")
    refused(node, "a service that is not there cannot be patched", "PATCH", "/v1/services/full",
            {"paused": True}, 404, "unknown_service")

    amqp = {"kind": "amqp", "target": "shop.orders/late.#"}
    status, value, _ = node.ask("PUT", "/v1/services/broker", amqp)
    ok(status == 201 and {k: value[k] for k in amqp} == amqp,
       "a service may be a routing key of an exchange", value)
    node.ask("DELETE", "/v1/services/broker")

    http_ = {"kind": "http", "target": "http://h/"}
    queue = {"kind": "queue"}
    bounds = {"timeout_ms": 3600000, "accept_ms": 2000000000, "max_attempts": 32000,
              "backoff_ms": 86400000, "backoff_max_ms": 86400000, "concurrency": 100000}
    for field, most in bounds.items():
        for value in 0, most + 1, -1, 1e300:
            refused(node, "%s of a service may not be %s" % (field, value), "PUT",
                    "/v1/services/new", {**queue, field: value}, 400, "out_of_range", field)
        for value in 1.5, "1", True, None, [1]:
            refused(node, "%s of a service may not be %r" % (field, value), "PUT",
                    "/v1/services/new", {**queue, field: value}, 400, "wrong_type", field)
    wrong = [
        ({}, "missing_field", "kind"), ({"kind": "brew"}, "out_of_range", "kind"),
        ({"kind": "amqp"}, "missing_field", "target"),
        ({"kind": "amqp", "target": "queue"}, "invalid_target", "target"),
        ({"kind": 1}, "wrong_type", "kind"), ({"kind": "http"}, "missing_field", "target"),
        ({**queue, "target": "http://h/"}, "conflicting_fields", "target"),
        ({**http_, "target": "http://h/" + "x" * 2000}, "out_of_range", "target"),
        ({**queue, "delivery": "exactly_once"}, "out_of_range", "delivery"),
        ({**queue, "notify": 1}, "wrong_type", "notify"),
        ({**queue, "paused": "no"}, "wrong_type", "paused"),
        ({**queue, "rate_per_s": -1}, "out_of_range", "rate_per_s"),
        ({**queue, "rate_per_s": 1000001}, "out_of_range", "rate_per_s"),
        ({**queue, "rate_per_s": 1e-300}, "out_of_range", "rate_per_s"),
        ({**queue, "rate_per_s": "1"}, "wrong_type", "rate_per_s"),
        ({**queue, "headers": []}, "wrong_type", "headers"),
        ({**queue, "headers": {"X-%d" % i: "" for i in range(33)}}, "invalid_header", "headers"),
        ({**queue, "version": 1}, "unknown_field", "version"),
        ({**queue, "service": "x"}, "unknown_field", "service"),
    ]
    for target in ("ftp://h/", "http://", "http:///x", "h", "http://h/ x", "http://h/\r\nX: y",
                   "http://u:p@h/", "http://h/#f", "http://h/\u00e9", "http://h/\x7f", "HTTP://h/"):
        wrong.append(({"kind": "http", "target": target}, "invalid_target", "target"))
    for name, value in (("X-A", "b\r\nX-B: c"), ("X-A", "b\nc"), ("X A", "b"), ("", "b"),
                        ("X-A:", "b"), ("Host", "h"), ("content-length", "3"), ("X-A", 1),
                        ("Transfer-Encoding", "chunked"), ("twheel-fence", "1"), ("X-A", "\0"),
                        ("X-\u00e9", "b"), ("X-A", "b" * 4001), ("Idempotency-Key", "x")):
        wrong.append(({**http_, "headers": {name: value}}, "invalid_header", "headers"))
    for body, code, field in wrong:
        refused(node, "a service may not be %s" % json.dumps(body)[:70], "PUT", "/v1/services/new",
                body, 400, code, field)
    refused(node, "a patch has to say something", "PATCH", "/v1/services/q", {}, 400,
            "missing_field")
    refused(node, "a patch may not take away where calls go", "PATCH", "/v1/services/h",
            {"target": ""}, 400, "conflicting_fields", "target")
    refused(node, "a patch may not give a queue a target", "PATCH", "/v1/services/q",
            {"target": "http://h/"}, 400, "conflicting_fields", "target")
    for name in "-x", "x" * 101, "a%20b", "a%2Fb", "%C3%A9", "":
        refused(node, "a service may not have the name %r" % name, "PUT", "/v1/services/" + name,
                queue, 404, "not_found")
    ok(node.ask("PUT", "/v1/services/" + "x" * 100, queue)[0] == 201,
       "a service may have a name of 100 characters")


def test_submit(node):
    status, value, headers = node.ask("POST", "/v1/jobs", job())
    ok(status == 201 and value == {"id": value["id"], "at": "2100-01-01T00:00:00.000000Z",
                                   "new": True},
       "a submit is answered 201 with the id and when it is due", value)
    ok(headers["Location"] == "/v1/jobs/%d" % value["id"], "a submit says where the job is")
    ok(sql("select count(*) from twheel.job where id = %d" % value["id"]) == "1",
       "what was answered is committed")
    ok(node.ask("GET", headers["Location"])[1] ==
       {"id": value["id"], "service": "q", "state": "delay", "attempt": 0, "bytes": 0,
        "at": "2100-01-01T00:00:00.000000Z"}, "a job is shown as it was submitted")

    full = job(key="k\u00e9\U0001f600", order_key="o" * 500, tag="t\"\\", slack_ms=3600000,
               payload_text="x")
    status, value, _ = node.ask("POST", "/v1/jobs", full)
    first = value["id"]
    shown = node.ask("GET", "/v1/jobs/%d" % first)[1]
    ok(status == 201 and all(shown[f] == full[f] for f in ("key", "order_key", "tag")) and
       sql("select slack_ms from twheel.job where id = %d" % first) == "3600000",
       "every field of a job is what was submitted", shown)
    before = rows()
    status, value, _ = node.ask("POST", "/v1/jobs", {**full, "payload_text": "y"})
    ok(status == 200 and value == {"id": first, "at": "2100-01-01T00:00:00.000000Z", "new": False}
       and rows() == before, "a keyed submit that is repeated makes no second job", value)
    status, value, _ = node.ask("POST", "/v1/jobs", {**full, "service": "h"})
    ok(status == 201 and value["id"] != first, "the same key of another service is another one")

    for text, want in (("2026-01-01T00:00:00+00:30", "2025-12-31T23:30:00.000000Z"),
                       ("2028-02-29T23:59:59.999999-23:59", "2028-03-01T23:58:59.999999Z"),
                       ("2100-06-30t12:00:00.1z", "2100-06-30T12:00:00.100000Z"),
                       ("2100-06-30T12:00:00.0000001Z", "2100-06-30T12:00:00.000001Z"),
                       ("2100-06-30T23:59:59.999999999Z", "2100-07-01T00:00:00.000000Z"),
                       ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000000Z"),
                       ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
                       ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z")):
        status, value, _ = node.ask("POST", "/v1/jobs", {"service": "p", "at": text})
        stored = sql("select to_char(at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') "
                     "from twheel.job where id = %d" % value.get("id", 0))
        ok(status == 201 and value["at"] == want == stored,
           "the time %s is %s" % (text, want), (value, stored))
    for text in ("2100-01-01", "2100-01-01T00:00:00", "2100-01-01 00:00:00Z", "1969-12-31T23:59:59Z",
                 "2100-02-29T00:00:00Z", "2100-13-01T00:00:00Z", "2100-00-01T00:00:00Z",
                 "2100-01-00T00:00:00Z", "2100-04-31T00:00:00Z", "2100-01-01T24:00:00Z",
                 "2100-01-01T00:60:00Z", "2100-01-01T00:00:61Z", "2100-01-01T00:00:00.Z",
                 "2100-01-01T00:00:00.0000000000Z", "2100-01-01T00:00:00+24:00",
                 "2100-01-01T00:00:00+0100", "2100-01-01T00:00:00 Z", "2100-01-01T00:00:00Z ",
                 "+2100-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "infinity", "now", "",
                 "2100-01-01T00:00:00Z\0", "\u0662100-01-01T00:00:00Z"):
        refused(node, "%r is no time" % text, "POST", "/v1/jobs", job(at=text), 400,
                "invalid_time", "at")

    clock = int(sql("select (extract(epoch from clock_timestamp()) * 1000000)::bigint"))
    status, value, _ = node.ask("POST", "/v1/jobs", {"service": "q", "delay_ms": 3600000})
    after = int(sql("select (extract(epoch from clock_timestamp()) * 1000000)::bigint"))
    # The clock is estimated from what beats and statements tell.
    ok(status == 201 and clock - 2000000 <= us(value["at"]) - 3600000000 <= after + 2000000,
       "a delay counts from now, by the database's clock", value)
    ok(node.ask("POST", "/v1/jobs", {"service": "q", "delay_ms": 3155760000000})[0] == 201,
       "a delay may be 100 years")
    status, value, _ = node.ask("POST", "/v1/jobs", {"service": "q", "payload_text": "now"})
    ok(status == 201 and until(lambda: sql(
        "select count(*) from twheel.queue where job = %d" % value["id"]) == "1"),
       "a job without a time is done now", value)
    sql("select twheel.take('q', 1000)")
    refused(node, "a job that has begun cannot be cancelled", "DELETE", "/v1/jobs/%d" % value["id"],
            None, 409, "running")
    refused(node, "a job that has begun cannot be moved", "PATCH", "/v1/jobs/%d" % value["id"],
            {"delay_ms": 1}, 409, "running")

    status, value, _ = node.ask("POST", "/v1/jobs", job(
        key=None, at=None, delay_ms=9999999, tag=None, order_key=None, slack_ms=None,
        payload_text=None, payload_base64=None))
    ok(status == 201 and payload_of(value["id"]) == b"", "null is as if a field were not there")


def test_payloads(node):
    for text in ('{"a": 1.10, "b" : [1e5,100000000000000000000000000] }', "null", "0", '"\\u0000"',
                 '"\\ud83d\\ude00\\"]}"', "[]", "[[\"}\",{}], -0]", "true", '"' + "x" * 1000 + '"'):
        for body in ('{"payload":%s,"service":"q","at":"%s"}', '{"service" : "q" ,"at":"%s", "payload" :  %s\n}',
                     '{ "jobs" : [ {"service":"q","at":"%s"}, {"payload": %s ,"service":"q","at":"%s"} ] }'):
            parts = {2: (text, FAR), 3: (FAR, text, FAR)}[body.count("%s")]
            if body.startswith('{"service"'):
                parts = (FAR, text)
            status, value, _ = node.ask("POST", "/v1/jobs", body % parts)
            found = payload_of(value["jobs"][1]["id"] if "jobs" in value else value["id"])
            ok(status == 201 and found == text.encode(),
               "the payload %s is kept as it stood in %s" % (text[:40], body[:12]), (value, found))
    every = bytes(range(256))
    status, value, _ = node.ask("POST", "/v1/jobs",
                                job(payload_base64=base64.b64encode(every).decode()))
    ok(status == 201 and payload_of(value["id"]) == every, "a payload in base64 may have any bytes")
    for data in b"", b"a", b"ab", b"abc":
        status, value, _ = node.ask("POST", "/v1/jobs",
                                    job(payload_base64=base64.b64encode(data).decode()))
        ok(status == 201 and payload_of(value["id"]) == data,
           "a payload of %d bytes in base64 is kept" % len(data))
    for text in "YQ", "YQ=", "YQ===", "YR==", "YWJ=", "Y Q=", "YQ==\n", "-_-_", "====", "a===", "YQ==YQ==":
        refused(node, "%r is no base64" % text, "POST", "/v1/jobs", job(payload_base64=text), 400,
                "invalid_base64", "payload_base64")
    status, value, _ = node.ask("POST", "/v1/jobs", job(payload_text="\0\u00e9"))
    ok(status == 201 and payload_of(value["id"]) == "\0\u00e9".encode(),
       "a payload of text is its UTF-8")
    raw = {"Content-Type": "application/octet-stream"}
    status, value, _ = node.ask("POST", "/v1/jobs?service=q&at=%s&key=raw%%20k&order_key=o&tag=r%%C3%%A9&"
                                "slack_ms=7" % FAR, every, raw)
    shown = node.ask("GET", "/v1/jobs/%d" % value.get("id", 0))[1]
    ok(status == 201 and payload_of(value["id"]) == every and
       (shown["key"], shown["order_key"], shown["tag"]) == ("raw k", "o", "r\u00e9"),
       "the body itself may be the payload", (value, shown))
    for size in MAX_PAYLOAD - 1, MAX_PAYLOAD:
        data = os.urandom(size)
        for name, answer in (
                ("base64", node.ask("POST", "/v1/jobs",
                                    job(payload_base64=base64.b64encode(data).decode()))),
                ("a body", node.ask("POST", "/v1/jobs?service=q&at=" + FAR, data, raw))):
            ok(answer[0] == 201 and payload_of(answer[1]["id"]) == data,
               "a payload of %d bytes can come as %s" % (size, name), answer[1])
    big = "x" * (MAX_PAYLOAD + 1)
    refused(node, "a body of more than 1 MiB is no payload", "POST", "/v1/jobs?service=q", big, 413,
            "payload_too_large", None, raw)
    refused(node, "base64 of more than 1 MiB is no payload", "POST", "/v1/jobs",
            job(payload_base64=base64.b64encode(big.encode()).decode()), 413, "payload_too_large",
            "payload_base64")
    refused(node, "text of more than 1 MiB is no payload", "POST", "/v1/jobs",
            job(payload_text=big), 413, "payload_too_large", "payload_text")
    refused(node, "JSON of more than 1 MiB is no payload", "POST", "/v1/jobs", job(payload=big),
            413, "payload_too_large", "payload")
    status, value, _ = node.ask("POST", "/v1/jobs", '{"service":"q","at":"%s","payload_text":"%s"}' %
                                (FAR, "\\u0061" * MAX_PAYLOAD))
    ok(status == 201 and payload_of(value["id"]) == b"a" * MAX_PAYLOAD,
       "a payload of 1 MiB may be six times that in a body", value)
    sql("delete from twheel.job where length(payload) > 1000000")


def test_wrong_jobs(node):
    wrong = [
        ("", 400, "invalid_json", None), ("{", 400, "invalid_json", None),
        ("{}x", 400, "invalid_json", None), ("\ufeff{}", 400, "invalid_json", None),
        ("[]", 400, "wrong_type", None), ("1", 400, "invalid_json", None),
        ("\0", 400, "invalid_json", None), ('{"service":"q"}\0', 400, "invalid_json", None),
        ("{}", 400, "missing_field", "service"),
        (b'{"service":"q","key":"\xff"}', 400, "invalid_utf8", None),
        (b'{"service":"q","key":"\xed\xa0\x80"}', 400, "invalid_utf8", None),
        (b'{"service":"q","key":"\xc0\x80"}', 400, "invalid_utf8", None),
        ('{"service":"q","key":"\\ud800"}', 400, "invalid_json", None),
        ('{"service":"q","service":"q"}', 400, "duplicate_field", None),
        ('{"service":"q","payload":{"a":1,"a":2}}', 400, "duplicate_field", None),
        ('{"service":"q","s\\u0000":1}', 400, None, None),
        ('{"service":"q","delay_ms":1e400}', 400, "number_too_large", None),
        ('{"service":"q","delay_ms":NaN}', 400, "invalid_json", None),
        ('{"service":"q","payload":%s}' % ("[" * 5000 + "]" * 5000), 400, "too_deep", None),
        ('{"service":"q","payload":%s}' % ('{"a":' * 5000 + "1" + "}" * 5000), 400, "too_deep", None),
        ('{"service":"q","payload":[%s{}]}' % ("{}," * 1200000), 413, "too_complex", None),
        ('{"service":"q","payload":[%s1]}' % ("1," * 400000), 413, "too_complex", None),
        (job(payload_text="\ud800x".encode("utf-16", "surrogatepass").hex(), payload=1), 400,
         "conflicting_fields", "payload_text"),
        (job(payload=1, payload_base64=""), 400, "conflicting_fields", "payload_base64"),
        (job(payload_text="", payload_base64=""), 400, "conflicting_fields", "payload_text"),
        (job(delay_ms=1), 400, "conflicting_fields", "delay_ms"),
        (job(nme=1), 400, "unknown_field", "nme"), (job(**{"": 1}), 400, "unknown_field", None),
        (job(**{"\u00e9" * 300: 1}), 400, "unknown_field", "\u00e9" * 63),
        (job(**{"a\n\"": 1}), 400, "unknown_field", 'a\n"'),
        ({"service": None}, 400, "wrong_type", "service"),
        ({"service": "nobody"}, 422, "unknown_service", "service"),
        ({"service": "q' or 1=1"}, 422, "unknown_service", "service"),
        ({"service": "s" * 101}, 400, "out_of_range", "service"),
        ({"jobs": []}, 400, "out_of_range", "jobs"), ({"jobs": {}}, 400, "wrong_type", "jobs"),
        ({"jobs": [job(), 1]}, 400, "wrong_type", "jobs[1]"),
        ({"jobs": [job(), {}]}, 400, "missing_field", "jobs[1].service"),
        ({"jobs": [job(), job(service="nobody")]}, 422, "unknown_service", "jobs[1].service"),
        ({"jobs": [job(), job(at="x")]}, 400, "invalid_time", "jobs[1].at"),
        ({"jobs": [job(), job(jobs=[])]}, 400, "unknown_field", "jobs[1].jobs"),
        ({"jobs": [job()], "service": "q"}, 400, "conflicting_fields", "jobs"),
        ({"service": "q", "jobs": [job()]}, 400, "conflicting_fields", "jobs"),
        ({"jobs": [{"service": "q"}] * 10001}, 413, "too_many_jobs", "jobs"),
        (" " * (16 * 1024 * 1024 + 1), 413, "body_too_large", None),
    ]
    for field in "key", "order_key", "tag":
        wrong += [(job(**{field: v}), 400, "out_of_range", field)
                  for v in ("", "a\0", "\0", "x" * 501, "\U0001f600" * 501)]
        wrong += [(job(**{field: v}), 400, "wrong_type", field) for v in (1, True, [], {})]
    for field, most in ("delay_ms", 3155760000000), ("slack_ms", 3600000):
        wrong += [({"service": "q", field: v}, 400, "out_of_range", field)
                  for v in (-1, most + 1, 2**63, -2**63, 10**30, 1e300)]
        wrong += [({"service": "q", field: v}, 400, "wrong_type", field)
                  for v in ("1", 0.5, True, [], {})]
    for field in "at", "payload_text", "payload_base64":
        wrong += [({"service": "q", field: v}, 400, "wrong_type", field)
                  for v in (1, True, [], {})]
    for body, status, code, field in wrong:
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        before = rows()
        answer = node.ask("POST", "/v1/jobs", body)
        code = code or answer[1].get("error", {}).get("code")
        ok(error_is(answer, status, code, field) and rows() == before,
           "%s is refused with %s" % (repr(text)[:70], code), answer[:2])

    raw = {"Content-Type": "application/octet-stream"}
    for query, code, field in (
            ("", "missing_field", "service"), ("service=q&service=q", "duplicate_field", "service"),
            ("service=q&nme=1", "unknown_field", None), ("service=q&payload=1", "unknown_field", None),
            ("service=q&key=", "out_of_range", "key"), ("service=q&key=%00", "out_of_range", "key"),
            ("service=q&key=a%00", "out_of_range", "key"), ("service=q&key=%FF", "out_of_range", "key"),
            ("service=q&delay_ms=x", "wrong_type", "delay_ms"),
            ("service=q&delay_ms=-1", "wrong_type", "delay_ms"),
            ("service=q&slack_ms=3600001", "out_of_range", "slack_ms"),
            ("service=q&at=x", "invalid_time", "at"), ("service=q&%00=1", "unknown_field", None),
            ("service=q&at=%s&delay_ms=1" % FAR, "conflicting_fields", "delay_ms"),
            ("&".join("a%d=1" % i for i in range(30)), "unknown_field", None)):
        refused(node, "a payload with the parameters %r is refused" % query[:50], "POST",
                "/v1/jobs?" + query, "x", 400, code, field, raw)
    refused(node, "parameters do not go with JSON", "POST", "/v1/jobs?service=q", job(), 400,
            "unknown_field")
    for kind in "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "":
        refused(node, "a body of the type %r is refused" % kind, "POST", "/v1/jobs", job(), 415,
                "unsupported_type", "Content-Type", {"Content-Type": kind})
    ok(node.ask("POST", "/v1/jobs", job(),
                {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 201,
       "a type may have parameters and capitals")


def test_many(node):
    jobs = [job(payload=i, tag="many") for i in range(10000)]
    status, value, _ = node.ask("POST", "/v1/jobs", {"jobs": jobs})
    ids = [j["id"] for j in value.get("jobs", [])]
    found = sql("select string_agg(id || ' ' || convert_from(payload, 'UTF8'), ',' order by id) "
                "from twheel.job where tag = 'many'")
    ok(status == 201 and len(set(ids)) == 10000 and
       dict(p.split() for p in found.split(",")) == {str(j): str(i) for i, j in enumerate(ids)},
       "10,000 jobs in a request are answered in their order", str(value)[:200])
    status, value, _ = node.ask("POST", "/v1/jobs", {"jobs": [
        job(key="m2"), job(), job(key="m1"), job(key="m2", tag="later"), job(key="m1")]})
    j = value["jobs"]
    ok(status == 201 and [x["new"] for x in j] == [True, True, True, False, False] and
       j[3]["id"] == j[0]["id"] and j[4]["id"] == j[2]["id"] and j[1]["id"] != j[0]["id"] and
       sql("select count(*) from twheel.job where key in ('m1', 'm2')") == "2" and
       sql("select count(*) from twheel.job where tag = 'later'") == "0",
       "a key that is twice in a request is the first one's", value)
    status, again, _ = node.ask("POST", "/v1/jobs", {"jobs": [job(key="m1"), job(key="m2")]})
    ok(status == 200 and [x["id"] for x in again["jobs"]] == [j[2]["id"], j[0]["id"]],
       "many keyed jobs that are repeated are answered 200 in their order", again)

    got = []

    def client(i):
        for n in range(20):
            keys = [("c%d" % ((n * 7 + k * (i + 1)) % 40)) for k in range(5)]
            got.append((keys, node.ask("POST", "/v1/jobs", {"jobs": [job(key=k) for k in keys]})))
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    of = {}
    good = len(got) == 160
    new = 0
    for keys, (status, value, _) in got:
        good = good and status in (200, 201)
        for k, j in zip(keys, value.get("jobs", [])):
            good = good and of.setdefault(k, j["id"]) == j["id"]
            new += j["new"]
    ok(good and new == len(of) == 40 ==
       int(sql("select count(*) from twheel.job where key ~ '^c[0-9]+$'")),
       "eight clients with the same keys in other orders make each job once", (new, len(of)))


def test_jobs(node):
    refused(node, "a job that never was is unknown", "GET", "/v1/jobs/987654321", None, 404,
            "unknown_job")
    refused(node, "a job that never was cannot be cancelled", "DELETE", "/v1/jobs/987654321", None,
            404, "unknown_job")
    refused(node, "a job that never was cannot be moved", "PATCH", "/v1/jobs/9223372036854775807",
            {"delay_ms": 1}, 404, "unknown_job")
    refused(node, "a job that never was cannot be requeued", "POST", "/v1/jobs/987654321/requeue",
            None, 404, "not_failed")
    for part in "x", "-1", "1x", "9223372036854775808", "1.0", "":
        refused(node, "%r is no job" % part, "DELETE", "/v1/jobs/" + part, None, 404, "not_found")
    id_ = node.ask("POST", "/v1/jobs", job(key="cancel"))[1]["id"]
    path = "/v1/jobs/%d" % id_
    status, value, _ = node.ask("PATCH", path, {"at": "2101-01-01T00:00:00.5Z"})
    ok(status == 200 and value == {"id": id_, "at": "2101-01-01T00:00:00.500000Z"} and
       node.ask("GET", path)[1]["at"] == value["at"], "a job can be moved", value)
    for body, code, field in (({}, "missing_field", "at"), ({"at": FAR, "delay_ms": 1},
                              "conflicting_fields", "delay_ms"), ({"at": "x"}, "invalid_time", "at"),
                              ({"delay_ms": -1}, "out_of_range", "delay_ms"),
                              ({"tag": "x"}, "unknown_field", "tag"), ({"at": None}, "missing_field", "at"),
                              ([], "wrong_type", None), ("x", "invalid_json", None)):
        refused(node, "a job may not be moved to %s" % json.dumps(body), "PATCH", path, body, 400,
                code, field)
    refused(node, "a move has a body of JSON", "PATCH", path, "x", 415, "unsupported_type", None,
            {"Content-Type": "text/plain"})
    refused(node, "a move has a small body", "PATCH", path, " " * 65537, 413, "body_too_large")
    refused(node, "a cancel has no body", "DELETE", path, "{}", 400, "unexpected_body")
    refused(node, "a cancel has no parameters", "DELETE", path + "?tag=x", None, 400,
            "unknown_field", "tag")
    status, value, _ = node.ask("DELETE", path)
    ok(status == 200 and value == {"id": id_, "state": "cancelled"}, "a job can be cancelled", value)
    refused(node, "a job that is cancelled is gone", "DELETE", path, None, 410, "gone")
    refused(node, "a job that is cancelled cannot be moved", "PATCH", path, {"delay_ms": 0}, 410,
            "gone")
    shown = node.ask("GET", path)[1]
    ok(shown["state"] == "cancelled" and shown["key"] == "cancel" and "ended" in shown,
       "a job that is cancelled is shown as that", shown)
    id_ = node.ask("POST", "/v1/jobs", job(tag="soon"))[1]["id"]
    node.ask("PATCH", "/v1/jobs/%d" % id_, {"delay_ms": 0})
    ok(until(lambda: sql("select count(*) from twheel.queue where job = %d" % id_) == "1"),
       "a job that is moved to now is done now")

    sql("insert into twheel.backlog (job, due, service, attempt, state, tag, payload) select 500000, "
        "now(), id, 3, 4, 'dead', 'xyz' from twheel.service where service = 'p'")
    status, value, headers = node.ask("POST", "/v1/jobs/500000/requeue")
    ok(status == 201 and value["requeued"] == 500000 and payload_of(value["id"]) == b"xyz" and
       headers["Location"] == "/v1/jobs/%d" % value["id"], "a dead job can be submitted again", value)
    refused(node, "a dead job can be submitted again once", "POST", "/v1/jobs/500000/requeue", None,
            404, "not_failed")

    shown = node.ask("GET", "/v1/jobs/500000")[1]
    ok(shown["state"] == "requeued" and shown["requeued"] == value["id"],
       "a dead job that was submitted again says as which", shown)
    ok([j["id"] for j in node.ask("GET", "/v1/jobs?state=requeued")[1]["jobs"]] == [500000],
       "jobs that were submitted again are listed as that")

    def in_queue():
        id_ = node.ask("POST", "/v1/jobs", {"service": "q", "key": "k", "tag": "in queue"})[1]["id"]
        until(lambda: sql("select count(*) from twheel.queue where job = %d" % id_) == "1")
        return id_, "/v1/jobs/%d" % id_

    def listed(state):
        return [j["id"] for j in node.ask("GET", "/v1/jobs?tag=in%%20queue&state=%s" % state)[1]["jobs"]]
    id_, path = in_queue()
    shown = node.ask("GET", path)[1]
    ok(shown["state"] == "ready" and shown["key"] == "k" and listed("ready") == [id_],
       "what is in a queue is ready", shown)
    status, value, _ = node.ask("DELETE", path)
    ok(status == 200 and sql("select count(*) from twheel.queue where job = %d" % id_) == "0",
       "what no consumer has taken is cancelled", value)
    sql("delete from twheel.seen where key = 'k'")
    id_, path = in_queue()
    sql("select twheel.take('q', 1000, '1 hour')")
    ok(node.ask("GET", path)[1]["state"] == "running" and listed("running") == [id_],
       "what a consumer has is running")
    refused(node, "what a consumer has is not cancelled", "DELETE", path, None, 409, "running")
    refused(node, "what a consumer has is not moved", "PATCH", path, {"at": FAR}, 409, "running")
    sql("select twheel.fail(seq, taken, 'no', '1 hour') from twheel.queue where job = %d" % id_)
    ok(node.ask("GET", path)[1]["state"] == "delay" and listed("delay") == [id_],
       "what a consumer has given back is delayed")
    status, value, _ = node.ask("PATCH", path, {"delay_ms": 0})
    ok(status == 200 and until(lambda: sql("select taken from twheel.queue where job = %d" % id_)
                               == "1"),
       "what is moved goes to the queue once more, with its attempts", value)
    ok(node.ask("DELETE", "/v1/jobs?tag=in%20queue")[1] == {"cancelled": 1, "more": False},
       "what is in a queue is cancelled by its tag")

    token = {"Twheel-Token": "0" * 64}
    refused(node, "a result needs the token of its attempt", "POST", "/v1/jobs/1/result",
            {"outcome": "done"}, 401, "unauthorized", "Twheel-Token")
    refused(node, "a result needs a token that could be one", "POST", "/v1/jobs/1/result",
            {"outcome": "done"}, 401, "unauthorized", "Twheel-Token", {"Twheel-Token": "x"})
    refused(node, "a result with another token is refused", "POST", "/v1/jobs/%d/result" % id_,
            {"outcome": "done", "message": "m" * 1000}, 409, "not_running", None, token)
    for body, code, field in (({}, "missing_field", "outcome"), ({"outcome": "x"}, "out_of_range",
                              "outcome"), ({"outcome": True}, "wrong_type", "outcome"),
                              ({"outcome": "done", "message": "m" * 1001}, "out_of_range", "message"),
                              ({"outcome": "done", "message": "\0"}, "out_of_range", "message"),
                              ({"outcome": "done", "x": 1}, "unknown_field", "x")):
        refused(node, "a result may not be %s" % json.dumps(body)[:50], "POST", "/v1/jobs/1/result",
                body, 400, code, field, token)


def test_lists(node):
    ids = [j["id"] for j in node.ask("POST", "/v1/jobs", {"jobs": [
        job(tag="list", service="h" if i % 2 else "q") for i in range(25)]})[1]["jobs"]]
    of_q = sorted(ids[::2])
    ids.sort()

    def pages(query):
        found, after = [], 0
        while True:
            status, value, _ = node.ask("GET", "/v1/jobs?%s&after=%d" % (query, after))
            found += [j["id"] for j in value["jobs"]]
            if status != 200 or "next" not in value:
                return found
            after = value["next"]
    ok(pages("tag=list&limit=10") == ids, "jobs of a tag are listed in pages")
    ok(pages("tag=list&limit=25") == ids, "a page that has just all is the last but an empty one")
    of_h = sorted(int(i) for i in sql(
        "select j.id from twheel.job j join twheel.service s on s.id = j.service "
        "where s.service = 'h'").split())
    ok(pages("service=h&limit=7") == of_h, "jobs of a service are listed in pages")
    all_ids = sorted(int(i) for i in sql("select id from twheel.job union all select job from "
                                         "twheel.queue").split())
    ok(pages("limit=1000") == all_ids, "all that is owed is listed in pages")
    ok(pages("state=delay&tag=list&service=q&limit=3") == of_q, "filters go together")
    ok(pages("state=running&tag=list") == [], "jobs of another state are not listed")
    status, value, _ = node.ask("DELETE", "/v1/jobs?tag=list&limit=20")
    ok(status == 200 and value == {"cancelled": 20, "more": True},
       "jobs of a tag are cancelled in pages", value)
    status, value, _ = node.ask("DELETE", "/v1/jobs?tag=list&limit=20")
    ok(value == {"cancelled": 5, "more": False}, "the last page says that it is", value)
    ok(pages("tag=list") == [] and pages("state=cancelled&tag=list&limit=4") == ids,
       "what was cancelled is listed as that")
    for query, field in (("state=x", "state"), ("limit=0", "limit"), ("limit=1001", "limit"),
                         ("limit=x", "limit"), ("after=-1", "after"), ("tag=" + "x" * 501, "tag"),
                         ("after=9223372036854775808", "after"), ("tag=%00", "tag"),
                         ("service=%FF", "service")):
        refused(node, "a list may not be asked with %s" % query[:30], "GET", "/v1/jobs?" + query,
                None, 400, "out_of_range", field)
    refused(node, "a list may not be asked with what there is not", "GET", "/v1/jobs?tags=x", None,
            400, "unknown_field", "tags")
    refused(node, "jobs are cancelled by a tag", "DELETE", "/v1/jobs", None, 400, "missing_field",
            "tag")
    node.ask("POST", "/v1/jobs", {"service": "q", "delay_ms": 50000000})
    value = node.ask("GET", "/v1/next?limit=3")[1]["jobs"]
    want = sql("select id from twheel.job where state = 0 and due < 'infinity' order by due, id "
               "limit 3").split()
    ok([str(j["id"]) for j in value] == want, "next says what the cluster fires next", value)
    refused(node, "next is bounded", "GET", "/v1/next?limit=1001", None, 400, "out_of_range", "limit")
    value = node.ask("GET", "/v1/nodes")[1]["nodes"]
    ok([n["shards"] for n in value if n["this"]] == [64], "nodes are listed with their shards", value)
    refused(node, "a service that has jobs is not deleted", "DELETE", "/v1/services/q", None, 409,
            "has_jobs")


def test_deletion(node):
    """Of a service, while somebody submits to it."""
    stop, answers = threading.Event(), []

    def client():
        while not stop.is_set():
            answers.append(node.ask("POST", "/v1/jobs", job(service="brief"))[:2])
            time.sleep(0.01)
    threads = [threading.Thread(target=client) for _ in range(4)]
    for t in threads:
        t.start()
    deleted, end = 0, time.monotonic() + 60
    while deleted < 30 and time.monotonic() < end:
        node.ask("PUT", "/v1/services/brief", {"kind": "queue"})
        time.sleep(deleted % 3 * 0.01)    # a fast machine has deleted it before any submits
        sql("delete from twheel.job j using twheel.service s where s.id = j.service and "
            "s.service = 'brief'")
        deleted += node.ask("DELETE", "/v1/services/brief")[0] == 204
    stop.set()
    for t in threads:
        t.join()
    ok(sql("select count(*) from twheel.job where service not in (select id from twheel.service)")
       == "0" and deleted, "no job is left of a service that was deleted", deleted)
    codes = {(a[0], (a[1].get("error") or {}).get("code")) for a in answers}
    ok({(201, None), (422, "unknown_service")} <= codes <=
       {(201, None), (422, "unknown_service"), (503, "busy")},
       "who submits to a service that was deleted is told that there is none", codes)
    node.ask("PUT", "/v1/services/brief", {"kind": "queue"})
    sql("delete from twheel.job j using twheel.service s where s.id = j.service and "
        "s.service = 'brief'")
    with Held("select twheel.submit('brief', '%s')" % FAR) as held:
        ok(error_is(node.ask("DELETE", "/v1/services/brief"), 503, "busy"),
           "a service is not deleted while an application submits to it")
        held.end("rollback")
    id_ = sql("insert into twheel.backlog (job, due, service, attempt, state, payload) select "
              "nextval('twheel.job_id'), now(), id, 1, 4, '' from twheel.service "
              "where service = 'brief' returning job")
    ok(node.ask("DELETE", "/v1/services/brief")[0] == 204, "then it is")
    refused(node, "a dead job of a service that was deleted is not requeued", "POST",
            "/v1/jobs/%s/requeue" % id_, None, 422, "unknown_service")


def test_pause(node):
    node.ask("PATCH", "/v1/services/q", {"paused": True})
    time.sleep(0.2)
    id_ = node.ask("POST", "/v1/jobs", {"service": "q"})[1]["id"]
    ok(until(lambda: node.ask("GET", "/v1/jobs/%d" % id_)[1]["state"] == "paused"),
       "a job of a paused service is parked when it is due")
    node.ask("PATCH", "/v1/services/q", {"paused": False})
    ok(until(lambda: sql("select count(*) from twheel.queue where job = %d" % id_) == "1"),
       "a job that was parked is done when its service goes on")


CRON = {"service": "q", "cron": "0 0 1 1 *", "start_at": FAR}
EVERY = {"service": "q", "every_ms": 60000, "start_at": FAR}
DEFAULTS = {"misfire": "smart", "misfire_ms": 60000, "overlap": "allow", "broadcast": False,
            "slack_ms": 0, "paused": False}
KNOWN = {"schedule", "state", "next", "bytes", "version", "last", "created", "upcoming"}


def said(value):
    """What a schedule that is shown says, without what is known of it."""
    return {k: v for k, v in value.items() if k not in KNOWN}


def test_schedules(node):
    path = "/v1/schedules/a"
    status, value, _ = node.ask("PUT", path, CRON)
    far = FAR[:-1] + ".000000Z"
    ok(status == 201 and said(value) == {**CRON, **DEFAULTS, "start_at": far} and
       value["schedule"] == "a" and value["state"] == "active" and value["version"] == 1,
       "a schedule is made with the defaults of the table", value)
    ok(sql("select count(*) from twheel.schedule where schedule = 'a'") == "1",
       "a schedule that was answered is committed")
    ok(said(node.ask("GET", path)[1]) == said(value), "a schedule is shown as it was put")
    status, value, _ = node.ask("PUT", path, {**CRON, "schedule": "a", "tz": None, "count": None})
    ok(status == 200 and value["version"] == 1 and said(value) == {**CRON, **DEFAULTS, "start_at": far},
       "a put of what is there changes nothing", value)
    full = {"service": "p", "cron": "0 0 12 ? * 6#3 2050-2060", "tz": "Asia/Tokyo",
            "start_at": "2050-01-01T00:00:00.000000Z", "end_at": "2060-01-01T00:00:00.000001Z",
            "misfire": "ignore", "misfire_ms": 86400000, "overlap": "queue", "broadcast": True,
            "slack_ms": 3600000, "payload": {"a": 1}, "paused": True}
    status, value, _ = node.ask("PUT", path, full)
    ok(status == 200 and said(value) == full and value["state"] == "paused" and value["version"] == 2,
       "every field of a schedule is what was put, at its bounds too", value)
    status, value, _ = node.ask("PUT", path, EVERY)
    ok(status == 200 and said(value) == {**EVERY, **DEFAULTS, "start_at": far},
       "what a put does not say is the default again", value)
    most = {**EVERY, "every_ms": 3155760000000, "count": 9007199254740992, "misfire_ms": 1000}
    ok(said(node.ask("PUT", path, most)[1]) == {**most, **DEFAULTS, "misfire_ms": 1000, "start_at": far},
       "an interval has the bounds of the table")

    def shown(tz, cron="30 2 * * *", start="2099-03-27T00:00:00Z"):
        return node.ask("PUT", path, {"service": "q", "cron": cron, "tz": tz, "start_at": start})[1]["upcoming"]
    want = ["2099-03-27T02:30:00+01:00", "2099-03-28T02:30:00+01:00", "2099-03-29T03:00:00+02:00",
            "2099-03-30T02:30:00+02:00", "2099-03-31T02:30:00+02:00"]
    ok(shown("Europe/Berlin") == want, "the next times are those of the zone, with its offset")
    ok(shown("America/St_Johns")[0] == "2099-03-27T02:30:00-02:30", "an offset may be to the west")
    ok(shown(None)[0] == "2099-03-27T02:30:00.000000Z", "without a zone they are of UTC")
    value = node.ask("PUT", path, {"service": "q", "cron": "0 0 * * *", "paused": True})[1]["upcoming"]
    now = int(sql("select (extract(epoch from clock_timestamp()) * 1000000)::bigint"))
    ok(now - 60000000 < us(value[0]) < now + 86400000000, "they begin after now", (value, now))
    value = node.ask("PUT", path, {"service": "q", "every_ms": 1500, "count": 3, "start_at": FAR})[1]
    ok(value["upcoming"] == ["2100-01-01T00:00:00.000000Z", "2100-01-01T00:00:01.500000Z",
                             "2100-01-01T00:00:03.000000Z"], "there are no more than there are", value)
    ok(node.ask("PATCH", path, {"paused": True})[1]["upcoming"] == value["upcoming"],
       "the next times are those of a schedule that is paused as well")

    for data in b'{"b" : [1.10, 1e400]}', b'{"b" : [1.10,"\\u0000"]}', b"1", b"null", b"", b" 1", b"1}", b"{}x", \
            b'1,"paused":true', b"\0", "\u00e9\"\\\n".encode(), b"\xff", b"[" * 3000, os.urandom(1000):
        node.ask("PUT", path, {**CRON, "payload_base64": base64.b64encode(data).decode()})
        value = node.ask("GET", path)[1]
        found = {k: v for k, v in value.items() if k.startswith("payload")}
        sql("update twheel.schedule set payload = 'x' where schedule = 'a'")
        node.ask("PATCH", path, found or {"payload_text": ""})
        stored = bytes.fromhex(sql("select encode(payload, 'hex') from twheel.schedule "
                                   "where schedule = 'a'"))
        # What json.loads() makes of a number may be another text.
        ok(len(found) == (data != b"") and value["bytes"] == len(data) and
           (stored == data or (list(found) == ["payload"] and json.loads(data) == found["payload"])),
           "the payload %s is shown as what can be put" % repr(data)[:30], (found, stored[:100]))
    for size in MAX_PAYLOAD, MAX_PAYLOAD + 1:
        status, value, _ = node.ask("PUT", path, {**CRON, "payload_text": "\1" * size})
        ok(status == 200 and value["bytes"] == size if size == MAX_PAYLOAD else
           (status, value["error"]["code"]) == (413, "payload_too_large"),
           "a schedule may have a payload of %s" % ("1 MiB" if size == MAX_PAYLOAD else "no more"),
           str(value)[:200])

    sql("delete from twheel.schedule")
    for name in "b", "a", "c":
        node.ask("PUT", "/v1/schedules/" + name, {**CRON, "service": "p" if name == "c" else "q"})

    def names(query=""):
        value = node.ask("GET", "/v1/schedules" + query)[1]
        return [s["schedule"] for s in value["schedules"]], value.get("next")
    ok(names() == (["a", "b", "c"], None), "schedules are listed by name", names())
    ok(names("?limit=2") == (["a", "b"], "b") and names("?after=b&limit=1") == (["c"], None),
       "schedules are listed in pages")
    ok(names("?service=p") == (["c"], None) and names("?service=none") == ([], None),
       "schedules of a service are listed")
    for query in "limit=0", "limit=1001", "limit=x", "after=%00", "after=", "service=%FF", "after=%C3":
        refused(node, "schedules may not be asked with %s" % query, "GET", "/v1/schedules?" + query,
                None, 400, "out_of_range", query.split("=")[0])
    refused(node, "schedules may not be asked with what there is not", "GET", "/v1/schedules?tag=x",
            None, 400, "unknown_field", "tag")

    node.ask("PUT", "/v1/services/scheduled", {"kind": "queue"})
    node.ask("PATCH", "/v1/schedules/c", {"service": "scheduled"})
    refused(node, "a service that has schedules is not deleted", "DELETE", "/v1/services/scheduled",
            None, 409, "has_schedules")
    status, value, headers = node.ask("POST", path + "/run")
    ok(status == 201 and value["schedule"] == "a" and headers["Location"] == "/v1/jobs/%d" % value["id"]
       and until(lambda: sql("select tag from twheel.queue where job = %d" % value["id"]) == "a"),
       "a schedule is run now", value)
    ok(node.ask("DELETE", path)[0] == 204 and names()[0] == ["b", "c"], "a schedule is deleted")
    for method, where, body in (("GET", path, None), ("DELETE", path, None), ("PATCH", path, {"paused": True}),
                                ("PATCH", path, {"cron": "@daily"}), ("POST", path + "/run", None)):
        refused(node, "%s of a schedule that is not there is refused" % method, method, where, body, 404,
                "unknown_schedule")
    for name in "-x", "x" * 101, "a%20b", "a%2Fb", "%C3%A9", "":
        refused(node, "a schedule may not have the name %r" % name, "PUT", "/v1/schedules/" + name,
                CRON, 404, "not_found")
    ok(node.ask("PUT", "/v1/schedules/" + "x" * 100, CRON)[0] == 201 and
       node.ask("POST", "/v1/schedules/%s/run" % ("x" * 100))[1]["schedule"] == "x" * 100,
       "a schedule may have a name of 100 characters")
    sql("delete from twheel.schedule")


def test_patched_schedules(node):
    path = "/v1/schedules/p"

    def patched(body, *gone, was=CRON, **now):
        sql("delete from twheel.schedule")
        node.ask("PUT", path, {**was, "payload": [1]})
        value = node.ask("PATCH", path, body)
        want = {**DEFAULTS, **was, "payload": [1], **now}
        for field in gone:
            del want[field]
        if "start_at" in want:
            want["start_at"] = want["start_at"][:19] + ".000000Z"
        ok(value[0] == 200 and said(value[1]) == want and value[1]["version"] == 2,
           "a patch of %s changes that" % json.dumps(body)[:60], value[:2])
    tokyo = {**CRON, "tz": "Asia/Tokyo"}
    three = {**EVERY, "count": 3}
    patched({"paused": True}, paused=True)
    patched({"payload_text": ""}, "payload")
    patched({"slack_ms": 5, "misfire": "ignore", "misfire_ms": 1000, "overlap": "skip"}, slack_ms=5,
            misfire="ignore", misfire_ms=1000, overlap="skip")
    patched({"slack_ms": None}, was={**CRON, "slack_ms": 5}, slack_ms=0)
    patched({"service": "p", "broadcast": True}, service="p", broadcast=True)
    for method in "PUT", "PATCH":
        refused(node, "a service with a schedule that is broadcast stays a queue", method,
                "/v1/services/p", {"kind": "http", "target": "http://127.0.0.1:9/x"}, 400,
                "conflicting_fields", "kind")
    patched({"cron": "@daily"}, was=tokyo, cron="@daily")
    patched({"tz": "Europe/Berlin"}, was=tokyo, tz="Europe/Berlin")
    patched({"tz": None}, "tz", was=tokyo)
    patched({"every_ms": 5000}, "cron", "tz", was=tokyo, every_ms=5000)
    patched({"every_ms": 5000, "count": 2}, "cron", "tz", was=tokyo, every_ms=5000, count=2)
    patched({"cron": "@daily"}, "every_ms", "count", was=three, cron="@daily")
    patched({"cron": "@daily", "tz": "Asia/Tokyo", "every_ms": None}, "every_ms", "count", was=three,
            cron="@daily", tz="Asia/Tokyo")
    patched({"count": None}, "count", was=three)
    patched({"start_at": None, "end_at": FAR}, "start_at", end_at=far_time())
    patched({"end_at": None, "start_at": "2101-01-01T00:00:00Z"}, "end_at",
            was={**CRON, "end_at": "2110-01-01T00:00:00Z"}, start_at="2101-01-01T00:00:00Z")
    sql("delete from twheel.schedule")
    node.ask("PUT", path, tokyo)
    for body, status, code, field in (
            ({}, 400, "missing_field", None), ({"schedule": "p"}, 400, "missing_field", None),
            ({"cron": None}, 400, "missing_field", "cron"),
            ({"count": 3}, 400, "conflicting_fields", "count"),
            ({"every_ms": 5, "tz": "Asia/Tokyo"}, 400, "conflicting_fields", "tz"),
            ({"end_at": "2099-01-01T00:00:00Z"}, 400, "out_of_range", "end_at"),
            ({"end_at": FAR}, 400, "out_of_range", "end_at"),
            ({"cron": "0 0 30 2 *"}, 400, "never_fires", "cron"),
            ({"tz": "Asia/Nowhere"}, 400, "unknown_zone", "tz"),
            ({"service": "none"}, 422, "unknown_service", "service"),
            ({"service": "h", "broadcast": True}, 400, "conflicting_fields", "broadcast"),
            ({"schedule": "q"}, 400, "conflicting_fields", "schedule")):
        refused(node, "a schedule is not patched with %s" % json.dumps(body), "PATCH", path, body, status,
                code, field)
    node.ask("PUT", path, EVERY)
    for body, code, field in (({"tz": "UTC"}, "conflicting_fields", "tz"),
                              ({"every_ms": None}, "missing_field", "cron"),
                              ({"start_at": "1999-01-01T00:00:00Z", "count": 5}, "never_fires", "start_at")):
        refused(node, "an interval is not patched with %s" % json.dumps(body), "PATCH", path, body, 400,
                code, field)
    sql("update twheel.schedule set start_at = null, end_at = '1999-01-01'")
    ok(node.ask("PATCH", path, {"payload": 1})[0] == 200, "a schedule that has ended can be changed")
    sql("update twheel.schedule set cron = '0 0 0 31 2 ? *', every_ms = null, end_at = null")
    ok(node.ask("PATCH", path, {"paused": True})[0] == 200, "one that is wrong can be paused")

    node.ask("PUT", path, CRON)
    with Held("update twheel.schedule set payload = 'held'; select 1") as held:
        ok(error_is(node.ask("PUT", path, EVERY), 503, "busy") and
           error_is(node.ask("PATCH", path, {"paused": True}), 503, "busy") and
           error_is(node.ask("DELETE", path), 503, "busy") and
           error_is(node.ask("POST", path + "/run"), 503, "busy"),
           "who changes a schedule that an application has locked is told so")
        ok(node.ask("GET", path)[0] == 200, "meanwhile it is shown")
        held.end("rollback")

    got = []

    def client(field, values):
        for value in values:
            got.append(node.ask("PATCH", path, {field: value})[0])
    threads = [threading.Thread(target=client, args=args) for args in (
        ("slack_ms", range(1, 31)), ("misfire_ms", range(1001, 1031)),
        ("cron", ["0 %d 1 1 *" % (i % 24) for i in range(30)]))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    value = node.ask("GET", path)[1]
    ok(set(got) <= {200, 503} and (503 in got or (value["slack_ms"], value["misfire_ms"], value["cron"]) ==
                                   (30, 1030, "0 5 1 1 *")),
       "patches of other fields at the same time are all done", (set(got), value))
    sql("delete from twheel.schedule")


def far_time():
    return FAR[:-1] + ".000000Z"


def test_wrong_schedules(node):
    wrong = [
        ("", "invalid_json", None), ("{", "invalid_json", None), ("{}x", "invalid_json", None),
        ("[]", "wrong_type", None), ("\0", "invalid_json", None),
        ({}, "missing_field", "service"), ({"service": "q"}, "missing_field", "cron"),
        ({"cron": "@daily"}, "missing_field", "service"),
        (b'{"service":"q","cron":"\xff"}', "invalid_utf8", None),
        (b'{"service":"q","cron":"\xed\xa0\x80"}', "invalid_utf8", None),
        ('{"service":"q","cron":"@daily","cron":"@daily"}', "duplicate_field", None),
        ('{"service":"q","every_ms":1e400}', "number_too_large", None),
        ('{"service":"q","cron":"@daily","payload":%s}' % ("[" * 5000 + "]" * 5000), "too_deep", None),
        ({**CRON, "every_ms": 5}, "conflicting_fields", "every_ms"),
        ({**CRON, "count": 5}, "conflicting_fields", "count"),
        ({**EVERY, "tz": "UTC"}, "conflicting_fields", "tz"),
        ({**CRON, "schedule": "x"}, "conflicting_fields", "schedule"),
        ({**CRON, "service": "h", "broadcast": True}, "conflicting_fields", "broadcast"),
        ({**CRON, "payload": 1, "payload_text": ""}, "conflicting_fields", "payload_text"),
        ({**CRON, "payload": 1, "payload_base64": ""}, "conflicting_fields", "payload_base64"),
        ({**CRON, "payload_base64": "YQ"}, "invalid_base64", "payload_base64"),
        ({**CRON, "misfire": "never"}, "out_of_range", "misfire"),
        ({**CRON, "overlap": "never"}, "out_of_range", "overlap"),
        ({**CRON, "end_at": FAR}, "out_of_range", "end_at"),
        ({**CRON, "start_at": None, "end_at": "1999-01-01T00:00:00Z"}, "never_fires", "end_at"),
        ({**CRON, "cron": "0 0 31 4 *"}, "never_fires", "cron"),
        ({**CRON, "cron": "0 0 0 1 1 ? 2099"}, "never_fires", "cron"),
        ({**EVERY, "start_at": "1999-01-01T00:00:00Z", "count": 2}, "never_fires", "start_at"),
    ]
    wrong += [({**CRON, field: 1}, "unknown_field", field or None)
              for field in ("version", "state", "next", "last", "error", "upcoming", "name", "")]
    for cron in ("* * * *", "* * * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
                 "* * * * 8", "*/0 * * * *", "5-3 * * * *", "a * * * *", "@never", "@dailyx", "x",
                 "0 0 1 1 * \u00e9", "0 0 0 1 1 ? 2300", "* * * * ;", "0 0 * * *'; drop"):
        wrong.append(({**CRON, "cron": cron}, "invalid_cron", "cron"))
    for tz in ("Europe/Nowhere", "europe/berlin/x", "/etc/passwd", "../../etc/passwd", "Europe/", "x y",
               "Europe", "zone.tab", "Europe/Berlin/", "Europe/Berlin/x", "\u00e9", "./UTC"):
        wrong.append(({**CRON, "tz": tz}, "unknown_zone", "tz"))
    for field in "service", "cron", "tz", "misfire", "overlap":
        wrong += [({**CRON, field: v}, "wrong_type", field) for v in (1, True, [], {})]
        wrong += [({**CRON, field: v}, "out_of_range", field)
                  for v in ("", "a\0", "\0", "x" * 501, "\U0001f600" * 501)]
    wrong += [({**CRON, field: None}, "wrong_type", field)
              for field in ("service", "misfire", "misfire_ms", "overlap", "broadcast", "paused", "schedule")]
    for field, least, most in (("every_ms", 1, 3155760000000), ("count", 1, 2**53),
                               ("misfire_ms", 1000, 86400000), ("slack_ms", 0, 3600000)):
        wrong += [({**EVERY, field: v}, "out_of_range", field)
                  for v in (least - 1, -1, most + 2, 2**63, -2**63, 10**30, 1e300)]
        wrong += [({**EVERY, field: v}, "wrong_type", field)
                  for v in ("1", 1000.5, True, [], {})]
    for field in "start_at", "end_at":
        wrong += [({**CRON, field: v}, "wrong_type", field) for v in (1, True, [], {})]
        wrong += [({**CRON, field: v}, "invalid_time", field)
                  for v in ("", "2100-01-01", "infinity", "now", "1969-12-31T23:59:59Z", FAR + "\0")]
    for field in "broadcast", "paused":
        wrong += [({**CRON, field: v}, "wrong_type", field) for v in (0, "true", [], {})]
    for field in "payload_text", "payload_base64":
        wrong += [({**CRON, field: v}, "wrong_type", field) for v in (0, True, [], {})]
    for body, code, field in wrong:
        refused(node, "a schedule may not be %s" % (repr(body) if isinstance(body, (str, bytes)) else
                                                   json.dumps(body))[:90], "PUT", "/v1/schedules/wrong",
                body, 400, code, field)
    value = node.ask("PUT", "/v1/schedules/wrong", {**CRON, "cron": "0 0 1,x 1 *"})[1]
    ok(value["error"]["message"].startswith("column 7: "), "an expression is refused with the column", value)
    refused(node, "a schedule of no service is refused", "PUT", "/v1/schedules/wrong",
            {**CRON, "service": "nobody"}, 422, "unknown_service", "service")
    refused(node, "a name of a service is no SQL", "PUT", "/v1/schedules/wrong",
            {**CRON, "service": "q' or 1=1"}, 422, "unknown_service", "service")
    refused(node, "a schedule has a body", "PUT", "/v1/schedules/wrong", " " * (16 * 1024 * 1024 + 1), 413,
            "body_too_large")
    refused(node, "a schedule has a body of JSON", "PUT", "/v1/schedules/wrong", "x", 415,
            "unsupported_type", "Content-Type", {"Content-Type": "application/octet-stream"})
    refused(node, "to run a schedule has no body", "POST", "/v1/schedules/wrong/run", "{}", 400,
            "unexpected_body")


def test_http(node):
    for path, allow in (("/v1/jobs", {"GET", "HEAD", "POST", "DELETE", "OPTIONS"}),
                        ("/v1/jobs/1", {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"}),
                        ("/v1/services/x", {"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"}),
                        ("/v1/schedules/x", {"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"}),
                        ("/v1/schedules", {"GET", "HEAD", "OPTIONS"}),
                        ("/v1/jobs/1/result", {"POST", "OPTIONS"}), ("/healthz", {"GET", "HEAD", "OPTIONS"})):
        status, _, headers = node.ask("OPTIONS", path)
        ok(status == 204 and set(headers["Allow"].split(", ")) == allow,
           "OPTIONS of %s says what there is" % path, headers["Allow"])
        for method in "TRACE", "BREW", "CONNECT":
            answer = node.ask(method, path)
            ok(error_is(answer, 405, "method_not_allowed") and
               set(answer[2]["Allow"].split(", ")) == allow, "%s of %s is refused" % (method, path),
               answer[:2])
    for path in ("/", "/v1", "/v2/jobs", "/v1/jobs/1/", "/v1/jobs/1/x", "/healthz/", "//healthz",
                 "/v1/../healthz", "/%2e", "/" + "x" * 5000):
        for method in "GET", "POST":
            ok(error_is(node.ask(method, path), 404, "not_found"),
               "%s of %s is not found" % (method, path[:20]))
    body = node.raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head = node.raw(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    ok(head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n") and
       b"Content-Length: 17" in head, "HEAD has the headers of GET and no body", head)
    text = body.split(b"\r\n\r\n", 1)[1].decode()
    lines = [l for l in text.splitlines() if not l.startswith("#")]
    ok(all(re.fullmatch(r'[a-z_]+(\{[a-z_]+="[^"]*"\})? [-+0-9.e]+', l) for l in lines) and
       "twheel_late_seconds_bucket{le=\"+Inf\"}" in text, "metrics are as Prometheus reads them")
    counts = [int(l.split()[1]) for l in lines if l.startswith("twheel_late_seconds_bucket")]
    ok(counts == sorted(counts) and ("twheel_late_seconds_count %d" % counts[-1]) in lines,
       "the buckets of a histogram add up")

    data = json.dumps(job()).encode()
    post = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    one = post + b"Content-Length: %d\r\n\r\n" % len(data) + data
    before = int(sql("select count(*) from twheel.job"))
    got = node.raw(one * 20 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                   end=False)
    ok(got.count(b"HTTP/1.1 201") == 20 and got.count(b"HTTP/1.1 200") == 1 and
       int(sql("select count(*) from twheel.job")) == before + 20,
       "requests that follow each other without waiting are all answered", got[:200])
    chunks = b"".join(b"1\r\n" + data[i:i + 1] + b"\r\n" for i in range(len(data))) + b"0\r\n\r\n"
    got = node.raw(post + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, end=False)
    ok(b" 201 " in got.split(b"\r\n")[0], "a body may come in chunks of a byte", got[:200])
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    got = node.raw(post + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 17 +
                   b"0\r\n\r\n", end=False)
    ok(b" 413 " in got.split(b"\r\n")[0] and b"body_too_large" in got,
       "a body in chunks is too large where it is", got[:200])
    with socket.create_connection(("127.0.0.1", node.port), 60) as s:
        s.sendall(post + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(data))
        first = s.recv(1000)
        s.sendall(data)
        second = s.recv(1000)
    ok(first.startswith(b"HTTP/1.1 100") and second.startswith(b"HTTP/1.1 201"),
       "who waits to be told to continue is told", (first, second))
    got = node.raw(post + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", end=False)
    ok(got.startswith(b"HTTP/1.1 413"), "who waits with too large a body is told at once", got[:100])
    for twice in b"Content-Length: 5\r\nContent-Length: 6\r\n", \
                 b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n":
        got = node.raw(post + twice + b"\r\n5\r\n{}   \r\n0\r\n\r\n" + one, end=False)
        ok(got.startswith(b"HTTP/1.1 400") and b"ambiguous_length" in got and got.count(b"HTTP/") == 1,
           "a length that is said twice ends the connection", got[:200])
        seen.append(("POST", "/v1/jobs", 400, "ambiguous_length"))
    got = node.raw(post + b"Content-Length: 99999999999999999999\r\n\r\n", end=False)
    ok(re.match(rb"HTTP/1.1 4\d\d", got), "a length that is no number is refused", got[:100])
    got = node.raw(post + b"X: " + b"y" * 100000 + b"\r\n\r\n", end=False)
    ok(re.match(rb"HTTP/1.1 4\d\d", got) or not got, "headers without an end are refused", got[:100])
    got = node.raw(b"\x16\x03\x01\x02\x00\x01\x00" * 100)
    ok(re.match(rb"HTTP/1.[01] 400", got) or not got, "what is not HTTP is refused", got[:100])

    before = int(sql("select count(*) from twheel.job"))
    for i in range(200):
        s = socket.create_connection(("127.0.0.1", node.port))
        s.sendall(one if i % 2 else one[:-5])
        if i % 4 > 1:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    ok(node.ask("GET", "/healthz")[0] == 200, "clients that leave while they are served do no harm")
    ok(until(lambda: int(sql("select count(*) from twheel.job")) >= before + 1),
       "what clients that left had asked is done")
    until(lambda: rows() == (time.sleep(0.5), rows())[1])


def test_browsers(node):
    for headers, field in (({"Origin": "http://localhost"}, "Origin"),
                           ({"Origin": "null"}, "Origin"), ({"Host": "evil.example"}, "Host"),
                           ({"Host": "127.0.0.1.evil.example"}, "Host"), ({"Host": "8.8.8.8:80"}, "Host"),
                           ({"Host": "localhost.evil.example:8740"}, "Host"), ({"Host": "[::2]"}, "Host"),
                           ({"Host": "[::1"}, "Host"), ({"Host": "[::1]x"}, "Host"), ({"Host": ""}, "Host")):
        refused(node, "without tokens a request with %s is refused" % headers, "POST", "/v1/jobs",
                job(), 403, "browser", field, headers)
    for host in "localhost", "LOCALHOST:1", "127.0.0.1:1", "127.1.2.3", "[::1]:8740", "[::1]":
        ok(node.ask("GET", "/healthz", None, {"Host": host})[0] == 200,
           "without tokens the host %s is good" % host)


def test_tokens():
    tokens = {"r": "read", "s": "submit", "a": "admin", "rs": "read,submit"}
    node = Node(*("token=%s %s %s" % (hashlib.sha256(t.encode()).hexdigest(), roles, t)
                  for t, roles in tokens.items()))

    def bearer(token, **headers):
        return {"Authorization": "Bearer " + token, **headers}
    may = {"GET /v1/jobs": "ra", "POST /v1/jobs": "sa", "DELETE /v1/jobs": "sa", "GET /v1/jobs/1": "rsa",
           "DELETE /v1/jobs/1": "sa", "PATCH /v1/jobs/1": "sa", "POST /v1/jobs/1/requeue": "sa",
           "GET /v1/services": "rsa", "GET /v1/services/q": "rsa", "PUT /v1/services/q": "a",
           "PATCH /v1/services/q": "a", "DELETE /v1/services/q": "a", "GET /v1/next": "ra",
           "GET /v1/nodes": "ra", "GET /metrics": "ra", "GET /v1/schedules": "rsa",
           "GET /v1/schedules/q": "rsa", "PUT /v1/schedules/q": "sa", "PATCH /v1/schedules/q": "sa",
           "DELETE /v1/schedules/q": "sa", "POST /v1/schedules/q/run": "sa"}
    before = rows()
    for what, roles in may.items():
        method, path = what.split()
        body = "x" if method in ("PUT", "PATCH") or what == "POST /v1/jobs" else None
        for token in tokens:
            status, value, _ = node.ask(method, path, body, bearer(token))
            ok((status == 403) == (not set(token) & set(roles)) and status != 401,
               "%s %s do %s" % (tokens[token], "may" if set(token) & set(roles) else "may not", what),
               (status, value))
        for headers in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": "Bearer"},
                        {"Authorization": "Bearer "}, {"Authorization": "Basic YTph"},
                        {"Authorization": "a"}, {"Authorization": ""}):
            answer = node.ask(method, path, body, headers)
            ok(error_is(answer, 401, "unauthorized") and
               answer[2]["WWW-Authenticate"].startswith("Bearer"),
               "%s needs a token, which is not %r" % (what, headers.get("Authorization")), answer[:2])
    ok(rows() == before, "who may not has changed nothing")
    for path in "/healthz", "/readyz", "/v1/openapi":
        ok(node.ask("GET", path)[0] == 200, "%s needs no token" % path)
    ok(error_is(node.ask("POST", "/v1/jobs/1/result", {"outcome": "done"},
                         {"Twheel-Token": "0" * 64}), 409, "not_running"),
       "a result needs its attempt's token alone")
    path = "/v1/services/secret"
    node.ask("PUT", path, {"kind": "http", "target": "http://127.0.0.1:1/",
                           "headers": {"Authorization": "Bearer hush"}}, bearer("a"))
    for token in tokens:
        shown = node.ask("GET", path, None, bearer(token))[1]["headers"]["Authorization"]
        ok((shown == "Bearer hush") == (token == "a"),
           "%s is%s shown the headers of a service" % (tokens[token], "" if token == "a" else " not"),
           shown)
        listed = node.ask("GET", "/v1/services", None, bearer(token))[1]
        ok(("hush" in str(listed)) == (token == "a"), "nor does a list show them to others")
    path = "/v1/schedules/secret"
    node.ask("PUT", path, {**CRON, "payload": "hush"}, bearer("s"))
    for token in tokens:
        ok((node.ask("GET", path, None, bearer(token))[1].get("payload") == "hush") == (token != "r"),
           "%s is%s shown the payload of a schedule" % (tokens[token], " not" if token == "r" else ""))
    ok("hush" not in str(node.ask("GET", "/v1/schedules", None, bearer("a"))[1]),
       "a list has no payloads of schedules")
    node.ask("DELETE", path, None, bearer("s"))
    ok(node.ask("POST", "/v1/jobs", job(), bearer("s", Origin="http://x", Host="y"))[0] == 201,
       "with a token a request may come from anywhere")
    ok(node.stop() == 0, "a node with tokens ends well", node.log[-20:])


class Acceptor(http.server.BaseHTTPRequestHandler):
    """Answers 202, and keeps the headers of each call."""
    calls = []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.calls.append(dict(self.headers))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_reports():
    """A look would find what goes on as well, but not within the time that is waited here."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Acceptor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    node, calls = Node("poll_ms=60000", "name=reports"), Acceptor.calls
    until(lambda: {n["this"]: n["shards"] for n in node.ask("GET", "/v1/nodes")[1]["nodes"]}
          .get(True) == 32)
    node.ask("PUT", "/v1/services/reports", {
        "kind": "http", "target": "http://127.0.0.1:%d/" % server.server_port, "backoff_ms": 1,
        "backoff_max_ms": 1})
    id_ = node.ask("POST", "/v1/jobs", {"service": "reports"})[1]["id"]

    def report(outcome):
        return node.ask("POST", "/v1/jobs/%d/result" % id_, {"outcome": outcome},
                        {"Twheel-Token": calls[-1]["Twheel-Token"]})[0]

    def accepted():
        return node.ask("GET", "/v1/jobs/%d" % id_)[1].get("state") == "accepted"
    ok(until(lambda: len(calls) == 1 and accepted()), "a job that was answered 202 is accepted")
    ok(report("failed") == 200 and until(lambda: len(calls) == 2, 20),
       "a job that is reported as failed is tried again soon", len(calls))
    ok(until(accepted) and report("done") == 200 and
       node.ask("GET", "/v1/jobs/%d" % id_)[1]["state"] == "finished",
       "a job that is reported as done is finished")
    node.stop()
    server.shutdown()
    server.server_close()


def test_bounds():
    node = Node("max_waiting=1")
    sql("analyze twheel.job")
    ok(until(lambda: error_is(node.ask("POST", "/v1/jobs", job()), 429, "too_many_waiting")),
       "a submit beyond the bound of jobs is refused")
    ok(node.ask("POST", "/v1/jobs", job())[2]["Retry-After"], "it says when to ask again")
    node.stop()


def test_down(node):
    node.ask("GET", "/healthz")
    pg = os.environ["POSTGRES"], os.environ["POSTGRES_DIR"]
    answers, stop = [], threading.Event()

    def client(i):
        n = 0
        while not stop.is_set():
            n += 1
            key = "down-%d-%d" % (i, n)
            answers.append((key, node.ask("POST", "/v1/jobs", job(key=key))))
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    until(lambda: len(answers) > 100)
    psql.close()
    subprocess.run([pg[0], "kill", pg[1]], check=True)
    ok(until(lambda: any(a[1][0] == 503 for a in answers)), "without PostgreSQL submits are refused")
    answer = node.ask("POST", "/v1/jobs", job())
    ok(error_is(answer, 503, "unavailable") and answer[2]["Retry-After"],
       "they say when to ask again", answer[:2])
    ok(error_is(node.ask("GET", "/v1/jobs/1"), 503, "unavailable"),
       "without PostgreSQL nothing is known of jobs")
    ok(node.ask("GET", "/healthz")[0] == 200, "without PostgreSQL the process turns")
    ok(error_is(node.ask("GET", "/readyz"), 503, "not_ready"), "without PostgreSQL it is not ready")
    subprocess.run([pg[0], "start", pg[1]], check=True, stdout=subprocess.DEVNULL)
    ok(until(lambda: node.ask("POST", "/v1/jobs", job())[0] == 201, 120),
       "when PostgreSQL is back submits are taken")
    # Those with keys have a connection of their own.
    until(lambda: node.ask("POST", "/v1/jobs", job(key="up"))[0] in (200, 201), 120)
    stop.set()
    for t in threads:
        t.join()
    codes = {(a[0], (a[1].get("error") or {}).get("code")) for _, a in answers}
    ok(codes <= {(201, None), (503, "unavailable"), (503, "unknown"), (503, "busy")},
       "each request was answered", codes)
    stored = set(sql("select key from twheel.job where key like 'down-%'").split())
    ok(all(k in stored for k, a in answers if a[0] == 201), "what was answered 201 is there")
    ok(not any(k in stored for k, a in answers if a[0] == 503 and
               a[1]["error"]["code"] == "unavailable"), "what was refused is not there")
    bad = [a for k, a in ((k, node.ask("POST", "/v1/jobs", job(key=k))) for k, a in answers
                          if a[0] == 503 and a[1]["error"]["code"] == "unknown")
           if a[0] not in (200, 201)]
    ok(not bad and sql("select count(*) - count(distinct key) from twheel.job where key like "
                       "'down-%'") == "0", "what is unknown can be submitted again", bad)


def test_locked(node):
    """An application that has a key for long holds nobody else up."""
    held = Held("select twheel.submit('q', '%s', key => 'held')" % FAR)
    id_ = int(held.answer)
    got = []
    thread = threading.Thread(target=lambda: got.append(node.ask("POST", "/v1/jobs", job(key="held"))))
    thread.start()
    ok(node.ask("POST", "/v1/jobs", job())[0] == 201 and not got,
       "who has no key does not wait for one that is held")
    ok(all(node.ask("POST", "/v1/jobs", job(key="free%d" % i))[0] == 201 for i in range(5)),
       "who has another key is served")
    thread.join()
    ok(error_is(got[0], 503, "busy"), "who waits too long is told so", got[0][:2])
    held.end("commit")
    status, value, _ = node.ask("POST", "/v1/jobs", job(key="held"))
    ok(status == 200 and value["id"] == id_, "then the key stands for the application's job", value)


def test_locked_job(node):
    """A minute would not do, if each waited as long as a statement may."""
    id_ = node.ask("POST", "/v1/jobs", job())[1]["id"]
    with Held("select 1 from twheel.job where id = %d for update" % id_):
        began = time.monotonic()
        ok(all(error_is(node.ask("DELETE", "/v1/jobs/%d" % id_), 503, "busy") for _ in range(12)) and
           time.monotonic() < began + 60, "who cancels a job that is locked is told soon")
        ok(node.ask("GET", "/v1/services")[0] == 200, "others are answered meanwhile")
    ok(node.ask("DELETE", "/v1/jobs/%d" % id_)[0] == 200, "what nobody has locked can be cancelled")


def test_untaken(node):
    """4 MB each, of which sockets take some."""
    sql("insert into twheel.job (due, at, service, shard, key, order_key, tag) select 'infinity', "
        "'2100-01-01', id, 1, repeat('k', 490) || i, repeat('\U0001f600', 500), "
        "repeat('\U0001f600', 500) from twheel.service, generate_series(1, 1000) i "
        "where service = 'q'")
    clients = []
    for _ in range(60):
        s = socket.create_connection(("127.0.0.1", node.port), 60)
        s.sendall(b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        clients.append(s)
    status = [s.recv(12)[-3:] for s in clients]
    ok(40 > status.count(b"200") > 5 and status.count(b"429") == 60 - status.count(b"200"),
       "answers that nobody takes are bounded", (status.count(b"200"), set(status)))
    ok(node.ask("GET", "/v1/services/q")[0] == 200, "what is small is answered meanwhile")
    for s in clients:
        s.close()
    ok(until(lambda: node.ask("GET", "/v1/jobs?limit=1000")[0] == 200),
       "when the clients are gone there is room again")
    sql("delete from twheel.job where due = 'infinity'")
    clients = []
    node.ask("PUT", "/v1/schedules/large", {**CRON, "payload_text": "\x01" * 1000000})
    for _ in range(60):
        s = socket.create_connection(("127.0.0.1", node.port), 60)
        s.sendall(b"GET /v1/schedules/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        clients.append(s)
    status = [s.recv(12)[-3:] for s in clients]
    ok(40 > status.count(b"200") > 5 and status.count(b"429") == 60 - status.count(b"200"),
       "nor may payloads that nobody takes be more", (status.count(b"200"), set(status)))
    for s in clients:
        s.close()
    until(lambda: node.ask("GET", "/v1/schedules/large")[0] == 200)
    node.ask("DELETE", "/v1/schedules/large")


def test_slow_headers(node):
    """More than there may be connections, each of which sends a byte now and then."""
    clients = [socket.create_connection(("127.0.0.1", node.port), 60) for _ in range(1000)]
    stop = threading.Event()

    def send():
        for s in clients:
            try:
                s.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
            except OSError:
                pass
        while not stop.wait(0.5):
            for s in clients:
                try:
                    s.send(b"x")
                except OSError:
                    pass
    thread = threading.Thread(target=send)
    thread.start()

    def is_served():
        try:
            return node.ask("GET", "/healthz", timeout=20)[0] == 200
        except OSError:
            return False
    ok(until(is_served, 90), "slow headers do not keep others out")
    stop.set()
    thread.join()
    for s in clients:
        s.close()


class Repeaters:
    """Clients that submit the same again at once, each with a key of its own."""
    def __init__(self, node, keys):
        self.node, self.answers, self.stopped = node, {key: [] for key in keys}, False
        self.threads = [threading.Thread(target=self.run, args=(key,)) for key in keys]
        for t in self.threads:
            t.start()

    def run(self, key):
        while not self.stopped:
            self.answers[key].append(self.node.ask("POST", "/v1/jobs", job(key=key)))

    def all_have(self, good):
        return until(lambda: all(a and good(a[-1]) for a in self.answers.values()), 120)

    def stop(self):
        self.stopped = True
        for t in self.threads:
            t.join()


def test_held_keys(node):
    """Twenty others take a second or two, but minutes if each waits for all that wait for a key."""
    keys = ["mine%d" % i for i in range(12)]
    values = ", ".join("('%s')" % key for key in keys)
    held = Held("select string_agg(twheel.submit('q', '%s', key => k)::text, ' ') from (values %s) v(k)"
                % (FAR, values))
    ids = dict(zip(keys, map(int, held.answer.split())))
    clients = Repeaters(node, keys)
    ok(clients.all_have(lambda a: error_is(a, 503, "busy")),
       "of many whose keys are held each is told so", clients.answers)
    end, served, bad = time.monotonic() + 60, 0, []
    while served < 20 and time.monotonic() < end and not bad:
        answer = node.ask("POST", "/v1/jobs", job(key="theirs%d" % served))
        bad = [] if answer[0] == 201 else [answer]
        served += not bad
    ok(served == 20, "who has another key does not wait for all of them", (served, bad))
    held.end("commit")
    ok(clients.all_have(lambda a: a[0] == 200), "then each key is had", clients.answers)
    clients.stop()
    ok(all(a[-1][1]["id"] == ids[key] for key, a in clients.answers.items()),
       "each stands for the application's job")

    held = Held("select twheel.submit('q', '%s', key => 'back')" % FAR)
    clients = Repeaters(node, ["back"])
    clients.all_have(lambda a: error_is(a, 503, "busy"))
    held.end("rollback")
    ok(clients.all_have(lambda a: a[0] == 200), "a key that is given back is had by who waits for it")
    clients.stop()
    made = {a[1]["id"] for a in clients.answers["back"] if a[0] in (200, 201)}
    ok([a[0] for a in clients.answers["back"]].count(201) == 1 and len(made) == 1 and
       sql("select count(*) from twheel.job where key = 'back'") == "1", "by one job", made)

    held = Held("select twheel.submit('q', '%s', key => 'cut')" % FAR)
    clients = Repeaters(node, ["cut"])
    clients.all_have(lambda a: error_is(a, 503, "busy"))
    ended = sql("select count(pg_terminate_backend(pid)) from pg_stat_activity "
                "where application_name like 'twheeld % submit-keyed'")
    held.end("rollback")
    ok(int(ended) > 0 and clients.all_have(lambda a: a[0] == 200) and
       sql("select count(*) from twheel.job where key = 'cut'") == "1",
       "one job is made though the connection ends while its key is held", clients.answers)
    clients.stop()


def test_drain_with_held_keys():
    node = Node()
    with Held("select count(twheel.submit('q', '%s', key => 'kept' || i)) "
              "from generate_series(1, 4) i" % FAR):
        got = []

        def client(key):
            try:
                got.append(node.ask("POST", "/v1/jobs", job(key=key)))
            except OSError:     # it came too late
                pass
        threads = [threading.Thread(target=client, args=("kept%d" % i,)) for i in range(1, 5)]
        for t in threads:
            t.start()
        waits = ("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and "
                 "application_name like 'twheeld % submit-keyed'")
        until(lambda: got or sql(waits) != "0")
        status = node.stop()
        for t in threads:
            t.join()
    ok(status == 0, "a node whose clients wait for keys ends well", node.log[-20:])
    ok(got and all(a[0] == 503 for a in got), "each of them was told", got)
    ok(sql("select count(*) from twheel.job where key like 'kept%'") == "0", "nothing is made of it")


def test_openapi(node):
    with open("openapi.json", encoding="utf-8") as f:
        doc = json.load(f)
    ok(node.ask("GET", "/v1/openapi")[1] == doc, "the OpenAPI file is what the server gives")
    codes = {s: set(r["x-codes"]) for s, r in doc["components"]["responses"].items()}
    declared = set(doc["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"])
    ok(declared == set().union(*codes.values()), "the OpenAPI file lists all codes of errors")
    patterns = {p: re.compile(re.sub(r"\{\w+\}", "[^/]+", p)) for p in doc["paths"]}
    for path, item in doc["paths"].items():
        some = path.replace("{id}", "1").replace("{service}", "q").replace("{schedule}", "q")
        methods = {m.upper() for m in item if m != "parameters"}
        allow = set(node.ask("OPTIONS", some)[2]["Allow"].split(", ")) - {"HEAD", "OPTIONS"}
        ok(allow == methods, "%s has the methods that the OpenAPI file says" % path, allow)
    wrong, used = set(), set()
    for method, path, status, code in seen:
        found = [p for p, pattern in patterns.items() if pattern.fullmatch(path)]
        operation = found and doc["paths"][found[0]].get(method.lower())
        if not operation or code == "not_found":
            continue
        used.add((method.lower(), found[0]))
        if code == "draining":
            continue
        if str(status) not in operation["responses"] or (code and code not in codes[str(status)]):
            wrong.add((method, found[0], status, code))
    ok(not wrong, "all that was answered is in the OpenAPI file", sorted(wrong))
    all_operations = {(m, p) for p, item in doc["paths"].items() for m in item if m != "parameters"}
    ok(used == all_operations, "each operation of the OpenAPI file was asked", all_operations - used)
    never = declared - {c for _, _, _, c in seen}
    ok(never <= {"internal", "draining", "unknown", "unreadable_zone"}, "each code of the OpenAPI file was seen", never)


def test_drain(node):
    answers = []

    def client():
        for _ in range(2000):
            try:
                answers.append(node.ask("POST", "/v1/jobs", job(tag="drain")))
            except OSError:
                return
    threads = [threading.Thread(target=client) for _ in range(8)]
    for t in threads:
        t.start()
    until(lambda: len(answers) > 200)
    status = node.stop()
    for t in threads:
        t.join()
    ok(status == 0, "a node that is asked to ends", node.log[-30:])
    ok({a[0] for a in answers} <= {201, 503}, "each request was answered", {a[0] for a in answers})
    stored = set(sql("select id from twheel.job where tag = 'drain'").split())
    ok({str(a[1]["id"]) for a in answers if a[0] == 201} == stored,
       "what is there is what was answered 201")


def main():
    node = Node()
    sql("insert into twheel.service (service, kind, paused) values ('p', 'queue', true)")
    until(lambda: node.ask("POST", "/v1/jobs", {"service": "p", "at": FAR})[0] == 201)
    sql("delete from twheel.job")
    tests = [test_submit, test_payloads, test_wrong_jobs, test_many, test_jobs, test_lists,
             test_deletion, test_pause, test_schedules, test_patched_schedules,
             test_wrong_schedules, test_http, test_browsers, test_locked, test_locked_job,
             test_untaken, test_slow_headers, test_held_keys]
    sql("delete from twheel.service where service = 'p'")
    test_services(node)
    sql("insert into twheel.service (service, kind, paused) values ('p', 'queue', true)")
    for test in tests:
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            test(node)
    test_tokens()
    test_reports()
    test_bounds()
    test_drain_with_held_keys()
    test_down(node)
    test_openapi(node)
    test_drain(node)
    wrong = [l for l in node.log if "Sanitizer" in l or "runtime error" in l]
    ok(not wrong, "sanitizers found nothing", "".join(node.log[-50:]) if wrong else "")
    psql.close()
    print("1..%d" % nr)
    return failed != 0


nodes = []
try:
    sys.exit(main())
except Exception:
    for n in nodes:
        print("".join("# " + l for l in n.log[-40:]))
    raise
