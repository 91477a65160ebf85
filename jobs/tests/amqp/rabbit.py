# SPDX-License-Identifier: GPL-2.0
"""A RabbitMQ to be broken, and a consumer that keeps what it gets. TWHEEL_RABBIT is the folder of one
that runs already, and goes on to, as to start one takes its time."""

import json
import os
import subprocess
import threading
import time

PEER = os.environ["AMQP_PEER"]
RABBITMQ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rabbitmq")


class Rabbit:
    def __init__(self, folder):
        self.folder = os.environ.get("TWHEEL_RABBIT")
        self.is_ours = not self.folder
        self.consumers = []
        if self.is_ours:
            self.folder = os.path.join(folder, "rabbit")
            self.make()
        with open(os.path.join(self.folder, "ports"), encoding="ascii") as f:
            self.port, self.tls_port = map(int, f.read().split()[:2])
        self.url = "amqp://guest:guest@127.0.0.1:%d/" % self.port

    def make(self):
        os.mkdir(self.folder)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", "key.pem", "-out", "cert.pem"], cwd=self.folder, check=True,
                       stderr=subprocess.DEVNULL)
        self.start()

    def do(self, command, *args):
        subprocess.run([RABBITMQ, command, self.folder, *args], check=True,
                       stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def start(self):
        self.do("start")

    def kill(self):
        self.do("kill")

    def stop(self):
        self.do("signal", "STOP")

    def go_on(self):
        self.do("signal", "CONT")

    def set_memory(self, watermark):
        """0 is an alarm."""
        self.do("ctl", "set_vm_memory_high_watermark", str(watermark))

    def peer(self, *args):
        """Until it is done, whatever the broker does."""
        while subprocess.run([PEER, str(self.port), *map(str, args)], check=False,
                             stderr=subprocess.DEVNULL).returncode:
            time.sleep(0.5)

    def consume(self, queue):
        self.consumers.append(Consumer(self.port, queue))
        return self.consumers[-1]

    def close(self):
        for c in self.consumers:
            c.close()
        if self.is_ours:
            self.do("end")


class Consumer:
    """@got are messages, in the order in which they came; by job in @jobs."""

    def __init__(self, port, queue):
        self.args = [PEER, str(port), "consume", queue]
        self.got, self.jobs, self.closed = [], {}, False
        self.process = None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.closed:
            self.process = subprocess.Popen(self.args, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL)
            for line in self.process.stdout:
                if line.endswith(b"}\n"):
                    message = json.loads(line)
                    self.got.append(message)
                    self.jobs.setdefault(message["twheel-job"], []).append(message)
            self.process.wait()
            time.sleep(0.5)

    def close(self):
        self.closed = True
        if self.process:
            self.process.kill()
