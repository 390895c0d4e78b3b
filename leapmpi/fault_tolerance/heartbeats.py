"""Where each rank stands, in memory that outlives it: one slot a rank, read by survivors and by the next start.

The memory is a mapped file of the run folder, ranks.stamps; before there is one, and for ranks that cannot reach it, it
is shared by the ranks of a node. A slot has a page of its own, so that ranks on different hosts never write to the same
page of a network file system. A change of phase is stamped by the training thread in well under a microsecond; the
rest, the pulse, is written by the watchdog's thread a few times a second.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leapmpi.system.phase_timers import PHASES, place

RUNNING, GIVING_UP, FAILED, ENDED = 1, 2, 3, 4
"""States of a rank: at work; about to end because nothing moves; has told of its failure; has ended in order."""

PAGE = 4096
_FORMAT, _VERSION = "leapmpi-stamps", 1
_NAMES = ("start", *PHASES)
_NUMBER = {name: number for number, name in enumerate(_NAMES)}
_MOST_RANKS = 1 << 20

_IDENTITY = struct.Struct("<q64s")  # process, host
_PLACE = struct.Struct("<bqqdQ")  # phase, epoch, iteration, when, how many changes
_PULSE = struct.Struct("<ddQQ?")  # when, processor seconds, moves, waits begun, whether waiting
_PLACE_AT, _PULSE_AT, _STATE_AT = 128, 256, 384


@dataclass(frozen=True)
class Heartbeat:
    """What one slot says. Times are seconds since 1970 by the rank's own clock."""

    rank: int
    host: str
    process: int
    state: int
    phase: str
    epoch: int | None
    iteration: int | None
    since: float
    changes: int
    pulse: float
    processor_seconds: float
    moves: int
    waits: int
    waiting: bool

    def where(self) -> str:
        """'phase compute, epoch 3, iteration 12', counted from 1."""
        return place(self.phase, self.epoch, self.iteration)

    def facts(self) -> dict[str, int | str | None]:
        """What summary.json tells of the rank that a failure is about."""
        return {
            "rank": self.rank,
            "host": self.host,
            "phase": self.phase,
            "epoch": self.epoch,
            "iteration": self.iteration,
        }


class HeartbeatBoard:
    """The slots of all ranks in `memory` (a map or another writable buffer); this rank writes the slot of `rank`."""

    def __init__(self, memory: mmap.mmap | bytearray, rank: int, path: Path | None = None) -> None:
        self.memory, self.rank, self.path = memory, rank, path
        self.changes = 0
        self._slot = PAGE * (1 + rank)
        host = socket.gethostname().encode()[:64]
        _IDENTITY.pack_into(memory, self._slot, os.getpid(), host)
        self.stamp("start", None, None)
        self.state = RUNNING

    def stamp(self, phase: str, epoch: int | None, iteration: int | None) -> None:
        """Note where this rank stands."""
        self.changes += 1
        numbers = (-1 if epoch is None else epoch, -1 if iteration is None else iteration)
        _PLACE.pack_into(self.memory, self._slot + _PLACE_AT, _NUMBER[phase], *numbers, time.time(), self.changes)

    def pulse(self, processor_seconds: float, moves: int, waits: int, waiting: bool) -> None:
        """Note how this rank gets on."""
        _PULSE.pack_into(self.memory, self._slot + _PULSE_AT, time.time(), processor_seconds, moves, waits, waiting)

    @property
    def state(self) -> int:
        """RUNNING, GIVING_UP, FAILED or ENDED."""
        return self.memory[self._slot + _STATE_AT]

    @state.setter
    def state(self, value: int) -> None:
        self.set_state(self.memory, self.rank, value)

    @staticmethod
    def set_state(memory: mmap.mmap | bytearray, rank: int, state: int) -> None:
        """Set the state of `rank` in `memory`."""
        memory[PAGE * (1 + rank) + _STATE_AT] = state

    def anyone(self, state: int) -> bool:
        """Whether another rank is in `state`, as far as this host has heard."""
        places = range(PAGE + _STATE_AT, len(self.memory), PAGE)
        return any(self.memory[at] == state for at in places if at != self._slot + _STATE_AT)

    def flush(self) -> None:
        """Let other hosts see this rank's slot. May block while the file system does."""
        if self.path is not None:
            with suppress(OSError):
                self.memory.flush(self._slot, PAGE)

    def look(self) -> dict[int, Heartbeat]:
        """The stamps of all ranks that have one, by rank. May block while the file system does."""
        if self.path is not None:
            with suppress(OSError, ValueError):
                # Opened anew, because a network file system tells what others wrote when a file is opened.
                return read_heartbeats(self.path)
        return self.look_at(self.memory)

    @staticmethod
    def look_at(memory: mmap.mmap | bytearray) -> dict[int, Heartbeat]:
        """The stamps in `memory`, by rank."""
        return _stamps(bytes(memory), _NAMES)


def size_of(ranks: int) -> int:
    """Bytes of the slots of `ranks` ranks and the header before them."""
    return PAGE * (1 + ranks)


def create_stamps(path: Path, ranks: int) -> str:
    """Make an empty file of stamps at `path`, in place of any other, and return the mark that tells it from others."""
    mark = secrets.token_hex(8)
    header = {"format": _FORMAT, "version": _VERSION, "ranks": ranks, "phases": _NAMES, "mark": mark}
    aside = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(json.dumps(header).encode())
            file.truncate(size_of(ranks))
        # Blocks are reserved now: a store to a mapped file on a full disk would end the process.
        with aside.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size_of(ranks))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return mark


def map_stamps(path: Path, mark: str, patience: float = 2.0) -> mmap.mmap | None:
    """The file of stamps at `path`, mapped for writing; None where it cannot be reached or is not the one of `mark`."""
    deadline = time.monotonic() + patience
    while True:
        with suppress(OSError, ValueError), path.open("r+b") as file:
            if _header(file.read(PAGE))["mark"] == mark:
                return mmap.mmap(file.fileno(), 0)
        if time.monotonic() > deadline:
            return None
        # A file made on another host may take a moment to appear.
        time.sleep(0.1)


def read_heartbeats(path: Path) -> dict[int, Heartbeat]:
    """The stamps in file `path`, by rank. Raises OSError when it cannot be read, ValueError when it holds no stamps."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        header = _header(file.read(PAGE))
        if os.fstat(handle).st_size != size_of(header["ranks"]):
            raise ValueError(f"{path} has another size than that of {header['ranks']} ranks")
        file.seek(0)
        return _stamps(file.read(size_of(header["ranks"])), tuple(header["phases"]))


def _header(page: bytes) -> dict:
    header = json.loads(page.rstrip(b"\0"))
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (_FORMAT, _VERSION):
        raise ValueError("not a file of stamps of this version")
    ranks, names = header.get("ranks"), header.get("phases")
    if not isinstance(ranks, int) or not 0 < ranks <= _MOST_RANKS or not isinstance(names, list):
        raise ValueError("a damaged file of stamps")
    return header


def _stamps(memory: bytes, names: tuple[str, ...]) -> dict[int, Heartbeat]:
    found = {}
    for rank in range(len(memory) // PAGE - 1):
        slot = PAGE * (1 + rank)
        process, host = _IDENTITY.unpack_from(memory, slot)
        phase, epoch, iteration, since, changes = _PLACE.unpack_from(memory, slot + _PLACE_AT)
        if not process or not 0 <= phase < len(names):
            continue
        found[rank] = Heartbeat(
            rank,
            host.rstrip(b"\0").decode(errors="replace"),
            process,
            memory[slot + _STATE_AT],
            str(names[phase]),
            None if epoch < 0 else epoch,
            None if iteration < 0 else iteration,
            since,
            changes,
            *_PULSE.unpack_from(memory, slot + _PULSE_AT),
        )
    return found
