"""Time of `resonax explore`: its start, coarse and fine maps, verdicts, and ten clients at once.

The server is a process, as a user starts it. It is started twice, so that its cache is warm. Times
are of the whole answer, as a client sees it: ``PYTHONPATH=src python benchmarks/explore.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SETTING = {"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97, "batch": 20}
CLIENTS = 10


class Server:
    """A server in a process of its own."""

    def __init__(self) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "resonax", "explore", "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().strip())
        self.home, self.token = f"http://{address.netloc}", parse_qs(address.query)["token"][0]
        self.printed = time.perf_counter() - began
        with urllib.request.urlopen(f"{self.home}/?token={self.token}"):  # the page, which warms up
            pass
        self.up = time.perf_counter() - began

    def ask(self, path: str, body: Any = None, client: str = "") -> tuple[int, Any, float]:
        """Return status, answer and seconds of a request."""
        began = time.perf_counter()
        headers = {"X-Resonax-Token": self.token, "X-Resonax-Client": client}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.home}/api/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                status, found = answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            status, found = error.code, json.load(error)
        return status, found, time.perf_counter() - began

    def memory(self) -> float:
        """Return the largest memory of the process so far, in MiB; 0 where it is not known."""
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return 0.0
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def stop(self) -> float:
        """End it by Ctrl-C; return how long that took."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        return time.perf_counter() - began


def question(count: int, turn: int) -> dict[str, Any]:
    """Return a map as a slider asks for it: another step size each time."""
    return {
        "setting": {**SETTING, "lr": 0.01 + 0.0001 * turn},
        "x": {"name": "period", "first": 12, "last": 60, "count": count},
        "y": {"name": "momentum", "first": 0.95, "last": 0.999, "count": count},
    }


def timed(name: str, server: Server, path: str, bodies: list[Any], bar: float) -> None:
    times = []
    for body in bodies:
        status, found, seconds = server.ask(path, body)
        assert status == 200, found
        times.append(seconds)
    middle, worst = statistics.median(times), max(times)
    print(f"{name:<34}{1e3 * middle:>9.0f} ms{1e3 * worst:>9.0f} ms   bar {1e3 * bar:.0f} ms")


def drag(server: Server, number: int, moves: int, seen: Counter[int]) -> None:
    """Ask for maps as a hand that drags does: without waiting for the answers."""
    threads = []
    for turn in range(moves):
        body = question(20, 7 * number + turn)
        thread = threading.Thread(
            target=lambda body=body: seen.update([server.ask("map", body, f"client {number}")[0]])
        )
        thread.start()
        threads.append(thread)
        time.sleep(0.05)
    for thread in threads:
        thread.join()


def drag_together(server: Server, moves: int) -> None:
    before, seen, began = server.memory(), Counter[int](), time.perf_counter()
    hands = [
        threading.Thread(target=drag, args=(server, number, moves, seen))
        for number in range(CLIENTS)
    ]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    seconds = time.perf_counter() - began
    answered, dropped = seen[200], seen[409]
    others = sum(seen.values()) - answered - dropped
    print(f"{CLIENTS} clients, {moves} moves each, in {seconds:.1f} s:", end=" ")
    print(f"{answered} answered, {dropped} superseded, {others} others")
    print(f"peak memory {before:.0f} MiB before, {server.memory():.0f} MiB after")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    cold = Server()
    first = cold.ask("verdict", {"setting": SETTING})[2]
    cold.ask("map", question(100, 0))
    cold.stop()
    server = Server()
    print(f"{os.cpu_count()} cores; the first verdict of the first start took {first:.1f} s")
    print(
        f"address printed after {server.printed:.2f} s, answers after {server.up:.2f} s   bar 2 s"
    )
    first = server.ask("verdict", {"setting": SETTING})[2]
    print(f"first verdict after that, while it warms up: {first:.1f} s")
    for path in ("safe", "spectrum", "runs"):  # until all is warm
        server.ask(path, {"setting": SETTING})
    for count in (20, 100):
        server.ask("map", question(count, 0))
    turns = range(1, repeats + 1)
    print(f"{'':<34}{'median':>12}{'worst':>12}")
    timed("coarse map, 20 x 20", server, "map", [question(20, k) for k in turns], 0.15)
    timed("fine map, 100 x 100", server, "map", [question(100, k) for k in turns], 1.0)
    moved = [{"setting": {**SETTING, "momentum": 0.95 + 0.002 * k}} for k in turns]
    timed("verdict", server, "verdict", moved, 0.3)
    for path, bar in (("safe", 1.0), ("spectrum", 1.0), ("runs", 1.0)):
        timed(path, server, path, moved, bar)
    drag_together(server, moves=20)
    assert server.ask("schema")[0] == 200
    print(f"ended by Ctrl-C in {server.stop():.2f} s")


if __name__ == "__main__":
    main()
