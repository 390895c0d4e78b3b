"""Heartbeats: where each rank is, in memory that outlives it. Survivors and the next start of the run read them.

The memory is a mapped file of the run folder, ranks.stamps, or shared by the ranks of a node. Each rank writes a slot,
which has a page to itself: hosts never write to the same page of a network file system. The training thread writes
the phase, epoch and iteration at each change of phase; the watchdog's writes the rest, the pulse.
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

RUNNING, GIVING_UP, FAILED, ENDED, REPORTING = 1, 2, 3, 4, 5
"""States of a rank: at work; about to end because nothing moves; reports its failure now, or has; has ended in order;
has failed, and reports it soon unless another rank does."""

PAGE = 4096
"""Bytes of the header, and of each slot."""

_RECENT = 60.0
"""Seconds within which a heartbeat may be that of a living rank, whatever the difference of two hosts' clocks."""

_SILENT = 3.0
"""Seconds without a change after which the heartbeat of another host is that of a dead rank."""

Facts = dict[str, int | str | None]
"""Place of a rank, as summary.json has it: rank, host, phase, epoch and iteration, here the last two from 0."""

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
    """Content of one slot. Times are seconds since 1970 by the rank's clock; epochs and iterations count from 0.

    `since` is when the rank entered its phase, `changes` how many phases it has entered, `pulse` when it last gave a
    sign of life; `moves`, `waits` and `waiting` are those of `leapmpi.comm.polling.Waits`.
    """

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
        """Format 'phase compute, epoch 3, iteration 12', counted from 1."""
        return place(self.phase, self.epoch, self.iteration)

    def facts(self) -> Facts:
        """Return the facts of summary.json about the rank of a failure."""
        return {name: getattr(self, name) for name in ("rank", "host", "phase", "epoch", "iteration")}


class HeartbeatTable:
    """Slots of all ranks; this rank writes one."""

    def __init__(self, memory: mmap.mmap | bytearray, rank: int, path: Path | None = None) -> None:
        """Fill the slot of `rank` in `memory`: a map of the file `path`, or memory shared by the node (None)."""
        self.memory = memory
        self.rank = rank
        self.path = path
        self.changes = 0
        self._slot = PAGE * (1 + rank)
        host = socket.gethostname().encode()[:64]
        _IDENTITY.pack_into(memory, self._slot, os.getpid(), host)
        self.write_place("start", None, None)
        self.state = RUNNING

    def write_place(self, phase: str, epoch: int | None, iteration: int | None) -> None:
        """Write where this rank is, and when it came there."""
        self.changes += 1
        numbers = (-1 if epoch is None else epoch, -1 if iteration is None else iteration)
        _PLACE.pack_into(self.memory, self._slot + _PLACE_AT, _NUMBER[phase], *numbers, time.time(), self.changes)

    def write_pulse(self, processor_seconds: float, moves: int, waits: int, waiting: bool) -> None:
        """Write that this rank lives, and how far it is in using the processor and in waiting."""
        _PULSE.pack_into(self.memory, self._slot + _PULSE_AT, time.time(), processor_seconds, moves, waits, waiting)

    @property
    def state(self) -> int:
        """State of this rank, a value such as RUNNING."""
        return self.memory[self._slot + _STATE_AT]

    @state.setter
    def state(self, value: int) -> None:
        self.memory[self._slot + _STATE_AT] = value

    def any_other_in(self, state: int) -> bool:
        """Return whether another rank is in `state`, as far as this host can see."""
        places = range(PAGE + _STATE_AT, len(self.memory), PAGE)
        return any(self.memory[at] == state for at in places if at != self._slot + _STATE_AT)

    def any_lower_in(self, state: int) -> bool:
        """Return whether a lower rank is in `state`, as far as this host can see."""
        return any(self.memory[at] == state for at in range(PAGE + _STATE_AT, self._slot, PAGE))

    def flush(self) -> None:
        """Let other hosts see this rank's slot. May block while the file system does."""
        if self.path is not None:
            assert isinstance(self.memory, mmap.mmap), "a file is mapped"
            with suppress(OSError):
                self.memory.flush(self._slot, PAGE)

    def read(self) -> dict[int, Heartbeat]:
        """Read the heartbeats of all ranks that have one, by rank. May block while the file system does."""
        if self.path is not None:
            with suppress(OSError, ValueError):
                # Opened again, because a network file system looks for what others wrote when a file is opened.
                return read_heartbeats(self.path)
        return heartbeats_in(self.memory)


def heartbeats_in(memory: mmap.mmap | bytearray) -> dict[int, Heartbeat]:
    """Read the heartbeats in the memory of a HeartbeatTable, by rank."""
    return _parsed(bytes(memory), _NAMES)


def table_bytes(ranks: int) -> int:
    """Return the bytes of a table: a page of its own, and one for each rank."""
    return PAGE * (1 + ranks)


def create_heartbeats(path: Path, ranks: int) -> str:
    """Make a file of empty slots at `path`, in place of any other; returns the token that identifies it.

    Raises OSError when it cannot be written.
    """
    token = secrets.token_hex(8)
    header = {"format": _FORMAT, "version": _VERSION, "ranks": ranks, "phases": _NAMES, "mark": token}
    aside = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(json.dumps(header).encode())
            file.truncate(table_bytes(ranks))

        # Blocks are reserved now: a store to a mapped file on a full disk would end the process.
        with aside.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, table_bytes(ranks))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return token


def map_heartbeats(path: Path, token: str, patience: float = 2.0) -> mmap.mmap | None:
    """Map the file of heartbeats at `path` for writing.

    None where it cannot be reached within `patience` seconds, or is not the one that `token` identifies.
    """
    deadline = time.monotonic() + patience
    while True:
        with suppress(OSError, ValueError), path.open("r+b") as file:
            if _header(file.read(PAGE))["mark"] == token:
                return mmap.mmap(file.fileno(), 0)
        if time.monotonic() > deadline:
            return None
        # A file made on another host may take a moment to appear.
        time.sleep(0.1)


def read_heartbeats(path: Path) -> dict[int, Heartbeat]:
    """Read the heartbeats in file `path`, by rank.

    Raises OSError when it cannot be read, ValueError when it holds no heartbeats.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        header = _header(file.read(PAGE))
        size = table_bytes(header["ranks"])
        if os.fstat(handle).st_size != size:
            raise ValueError(f"{path} has another size than that of {header['ranks']} ranks")
        file.seek(0)
        return _parsed(file.read(size), tuple(header["phases"]))


def is_alive(heartbeat: Heartbeat, before: Heartbeat, waited: float) -> bool:
    """Judge whether the rank of `heartbeat` may still run; `before` is its heartbeat `waited` seconds ago."""
    recent = abs(time.time() - heartbeat.pulse) < _RECENT
    if heartbeat.state == ENDED or not recent:
        return False
    if heartbeat.host == socket.gethostname():
        return heartbeat.process != os.getpid() and _runs(heartbeat.process)
    # Of other hosts only the heartbeat is seen, which they flush every second, by a clock of their own.
    return heartbeat.pulse != before.pulse or waited < _SILENT


def _runs(process: int) -> bool:
    """Return whether this host has such a process, other than one that is dead and not yet reaped."""
    with suppress(OSError):
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return status.rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _header(page: bytes) -> dict:
    """Read the header of a file of heartbeats. Raises ValueError for anything else."""
    header = json.loads(page.rstrip(b"\0"))
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (_FORMAT, _VERSION):
        raise ValueError("not a file of heartbeats of this version")
    ranks, names = header.get("ranks"), header.get("phases")
    if not isinstance(ranks, int) or not 0 < ranks <= _MOST_RANKS or not isinstance(names, list):
        raise ValueError("a damaged file of heartbeats")
    return header


def _parsed(memory: bytes, names: tuple[str, ...]) -> dict[int, Heartbeat]:
    """Parse the heartbeats in `memory`, by rank; `names` are those of the phases, by number."""
    found = {}
    for rank in range(len(memory) // PAGE - 1):
        # The first page is a header; each rank writes to a page of its own.
        slot = PAGE * (1 + rank)
        process, host = _IDENTITY.unpack_from(memory, slot)
        phase, epoch, iteration, since, changes = _PLACE.unpack_from(memory, slot + _PLACE_AT)

        # An empty slot, or a damaged one.
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
