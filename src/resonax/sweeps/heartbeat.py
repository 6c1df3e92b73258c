"""Signs of life: each process that works on a store says what it is at, beside the store.

A sign is a small file in the folder ``running`` of the results, one for each process, written anew
every few seconds by a thread of its own, and removed in the end. A killed process leaves its sign,
which is not renewed. Nothing that is computed rests on these files: they are for `resonax status`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from resonax.run.interrupts import clean_up_on_exit
from resonax.store import Place, file_names, is_running, read_files, remove, write_files

__all__ = ["LOST", "Sign", "forget_signs", "read_signs", "signs_of_life"]

_FOLDER = "running"
_FIRST, _AGAIN = 1.0, 10.0  # seconds after which a sign is written, and written anew
_PATIENCE = 10.0  # seconds that the last one has to be written
LOST = 60.0  # seconds after which a sign that was not renewed is that of a lost process


@dataclass
class Sign:
    """What a process is at; times are those of its clock."""

    id: str  # of the experiment
    task: int = -1
    share: float = 0.0  # of the task that is done
    began: float = 0.0  # the task
    beat: float = 0.0  # the sign
    host: str = field(default_factory=platform.node)
    process: int = field(default_factory=os.getpid)

    def begin(self, task: int) -> None:
        """Note that a task is begun."""
        self.task, self.share, self.began = task, 0.0, time.time()

    @property
    def age(self) -> float:
        """Seconds since it was written."""
        return max(time.time() - self.beat, 0.0)

    @property
    def is_lost(self) -> bool:
        """Whether it was not renewed for long, or its process, on this machine, has ended."""
        return self.age > LOST or (self.host == platform.node() and not is_running(self.process))


@contextlib.contextmanager
def signs_of_life(out: Place, experiment: str) -> Iterator[Sign]:
    """Give a sign to be kept up to date, which is written now and then, and removed in the end."""
    sign, ended = Sign(experiment), threading.Event()
    name = f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}.json"

    def write() -> None:
        pause = _FIRST
        while not ended.wait(pause):
            sign.beat, pause = time.time(), _AGAIN
            with contextlib.suppress(Exception):  # a sign is not worth an error
                write_files(out, {f"{_FOLDER}/{name}": json.dumps(asdict(sign)).encode()})

    def end() -> None:
        ended.set()
        thread.join(_PATIENCE)  # it may be writing to a disk that does not answer
        if sign.beat:
            _remove(out, name)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        with clean_up_on_exit(end):
            yield sign
    finally:
        end()


def read_signs(out: Place) -> dict[str, Sign]:
    """Return the signs of all processes that work on results, or were lost, by the file's name."""
    folder, found = out / _FOLDER, {}
    for name, data in read_files(folder, file_names(folder)).items():
        with contextlib.suppress(TypeError, ValueError):
            found[name] = Sign(**json.loads(data))
    return found


def forget_signs(out: Place, experiment: str) -> None:
    """Remove the signs of processes that were lost with an experiment that is complete by now."""
    for name, sign in read_signs(out).items():
        if sign.id == experiment and sign.is_lost:
            _remove(out, name)


def _remove(out: Place, name: str) -> None:
    place = out / _FOLDER / name
    with contextlib.suppress(OSError):
        place.unlink() if isinstance(place, Path) else remove(place)
        if isinstance(out, Path):
            (out / _FOLDER).rmdir()  # unless there are others
