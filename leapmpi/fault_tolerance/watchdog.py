"""The watchdog: a thread of each rank that ends its process when the job cannot go on, and says who is to blame.

It makes no MPI call. It ends the process when a rank of the same host died without a word, when the launcher is gone,
when another rank has failed and this one is still here, and when nothing has moved for `limit` seconds, as `standstill`
defines it. What it knows of other ranks stands in their stamps; of ranks whose stamps it cannot see it knows nothing,
and waits for them no longer than the limit (while loading, `PATIENCE` times as long).

What may block on a broken file system or a full pipe is done by threads of its own, which the watchdog outlives.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.launcher import launcher_size
from leapmpi.comm.polling import waits
from leapmpi.comm.shared_memory import map_shared
from leapmpi.comm.world import World
from leapmpi.fault_tolerance.diagnosis import about_the_dead, about_the_late
from leapmpi.fault_tolerance.heartbeats import (
    ENDED,
    FAILED,
    GIVING_UP,
    RUNNING,
    Heartbeat,
    HeartbeatBoard,
    create_stamps,
    map_stamps,
    size_of,
)
from leapmpi.fault_tolerance.launcher_cleanup import outlived_after_a_failure, outlived_by_none
from leapmpi.fault_tolerance.report import report_failure
from leapmpi.fault_tolerance.stall_detector import PATIENCE, StallDetector
from leapmpi.runs.run_folder import HEARTBEATS_FILE
from leapmpi.system.memory import kills_for_memory
from leapmpi.system.phase_timers import PhaseTimers, ignore_change

LOST_CODE = 76
"""The exit code of a rank that ends because another was lost or nothing moves any more: start the job again."""

_TICK = 0.5
_LINGER = 2.0
"""Seconds that the launcher has to end the job by itself after a death, or other ranks to leave their stacks."""

_LAST_WORDS = 10.0
"""Seconds after which a process ends whether its last words were heard or not."""

_ABORT = 30.0
"""Seconds within which a failure elsewhere should have ended this process."""

_SUSPENDED = 5.0
"""A tick this late means that the process itself was stopped: what it did not see does not count."""


class Watchdog:
    """Watches over this rank, and over the others for it. `told` is true once it has spoken for a lost rank.

    Args:
        world: the job.
        phases: stamped from `start` on.
        limit: seconds without any move after which the job is ended; 0 waits for ever.
        folder: the run folder once there is one.
    """

    def __init__(self, world: World, phases: PhaseTimers, limit: float, folder: list[Path]) -> None:
        self.world, self.phases, self.limit, self.folder = world, phases, limit, folder
        self.told = False
        self.board: HeartbeatBoard | None = None
        self._memory: Any = None
        self._peers: dict[int, int] = {}
        self._standstill = StallDetector(limit)
        self._seen: dict[int, Heartbeat] = {}
        self._pulses: dict[int, tuple[float, float]] = {}
        self._looker: threading.Thread | None = None
        self._flushed = self._last = 0.0
        self._watched = 0
        self._deadline = float("inf")
        self._stop = os.eventfd(0)
        self._parent = os.getppid() if launcher_size() else 0
        self._killed_for_memory = kills_for_memory()
        self._tick = min(_TICK, limit / 20) if limit else _TICK
        self._thread = threading.Thread(target=self._watch, name="leapmpi-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch. Collective."""
        node, size = self.world.node_comm, size_of(self.world.size)
        self._memory = map_shared(node, size, "leapmpi-stamps") or bytearray(size)
        self._use(HeartbeatBoard(self._memory, self.world.rank))
        namespace = os.stat("/proc/self/ns/pid").st_ino
        everyone = all_gather_values(node, [self.world.rank, os.getpid(), namespace])
        for rank, process, place in everyone:
            if rank != self.world.rank and place == namespace:
                with suppress(OSError):
                    self._peers[os.pidfd_open(process)] = rank
        self._watched, self._last = threading.get_ident(), time.monotonic()
        self._thread.start()

    def move_to(self, folder: Path) -> None:
        """From now on stamp in the run folder, where this rank can reach it. Collective."""
        made = None
        if self.world.rank == 0:
            # A folder that cannot hold the stamps is no reason to end: the nodes keep theirs.
            with suppress(OSError):
                made = create_stamps(folder / HEARTBEATS_FILE, self.world.size)
        mark = all_gather_values(self.world.comm, made)[0]
        memory = mark and map_stamps(folder / HEARTBEATS_FILE, mark)
        if memory:
            self._use(HeartbeatBoard(memory, self.world.rank, folder / HEARTBEATS_FILE))

    def stop(self) -> None:
        """Watch no longer: this rank has come to its end in order."""
        self.phases.on_change = ignore_change
        self._note(ENDED)
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        for handle in (*self._peers, self._stop):
            os.close(handle)

    def failing(self) -> None:
        """This rank is about to tell of its failure and abort the job; its process ends even if that hangs."""
        self._note(FAILED)
        self._deadline = time.monotonic() + _ABORT

    def launcher_ends(self, interrupted: bool = False) -> None:
        """This process is about to end with an error: see to it that the launcher does not outlive it for long."""
        if self._parent and self._first_here():
            outlived_after_a_failure(self._parent, interrupted)

    def ends_the_process(self) -> NoReturn:
        """Wait until the watchdog, which has `told` of a lost rank, ends this process."""
        self._thread.join()
        os._exit(LOST_CODE)

    def _use(self, board: HeartbeatBoard) -> None:
        board.stamp(self.phases.current, self.phases.epoch, self.phases.iteration)
        self.board, self.phases.on_change = board, board.stamp

    def _note(self, state: int) -> None:
        """Set this rank's state where it stamps, and in the memory of the node, where others may look."""
        self.board.state = state
        if self.board.memory is not self._memory:
            HeartbeatBoard.set_state(self._memory, self.world.rank, state)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        events = select.poll()
        for handle in (*self._peers, self._stop):
            events.register(handle, select.POLLIN)
        while True:
            ready = {handle for handle, _ in events.poll(self._tick * 1000)}
            if self._stop in ready:
                return
            now = time.monotonic()
            dead = [self._peers[handle] for handle in ready]
            for handle in ready:
                events.unregister(handle)
            self._pulse(now)
            self._judge(now, sorted(dead))

    def _pulse(self, now: float) -> None:
        """Tell others how this rank gets on, and take note of it here."""
        if now - self._last > self._tick + _SUSPENDED:
            self._standstill.forget()
            self._pulses.clear()
        self._last = now
        spent = time.process_time() - time.thread_time()
        self.board.pulse(spent, waits.moves, waits.begun, waits.waiting)
        self._standstill.see(now, self.world.rank, waits.moves + self.board.changes, spent, waits.waiting)
        if self.world.nodes > 1 and now - self._flushed > 1.0:
            self._flushed = now
            self._aside(self.board.flush)

    def _judge(self, now: float, dead: list[int]) -> None:
        """End this process if there is a reason to."""
        lost = self._lost(dead)
        if lost:
            self._end(lambda: self._tell_of_the_dead(lost))
        if self._parent and os.getppid() != self._parent:
            self._end(self._tell_of_the_launcher)
        if self._deadline == float("inf") and (self.board.anyone(FAILED) or self.board.anyone(GIVING_UP)):
            self._leave_stack()
            self._deadline = now + _ABORT
        if now > self._deadline:
            self._end(lambda: None)
        if self.limit and self.board.state == RUNNING:
            self._judge_pace(now)

    def _judge_pace(self, now: float) -> None:
        pace, rank = self._standstill, self.world.rank
        if pace.quiet(rank, now) < self.limit / 4 and pace.moves(rank, now):
            for other in [each for each in pace.paces if each != rank]:
                del pace.paces[other]
            self._seen = {}
            return
        self._look(now)
        if not pace.moves(rank, now) and not self._is_waited_for(now):
            self._end(lambda: self._tell_of_the_late(now))

    def _is_waited_for(self, now: float) -> bool:
        """Whether this rank waits for good reason: others are seen to move, or may be loading where none can see."""
        if not waits.waiting:
            return False
        if any(self._standstill.moves(rank, now, 0.75 * self.limit) for rank in self._seen):
            return True
        unseen = self.world.size - 1 > len(self._seen)
        return (
            unseen
            and self.phases.current in ("start", "load")
            and (self._standstill.quiet(self.world.rank, now) < PATIENCE * self.limit)
        )

    def _look(self, now: float) -> None:
        """Take note of what the stamps of the others say, and have them read again."""
        for rank, stamp in self._seen.items():
            if self._pulses.get(rank, (0.0, 0.0))[0] != stamp.pulse:
                self._pulses[rank] = stamp.pulse, now
            self._standstill.see(now, rank, stamp.moves + stamp.changes, self._spent(stamp), stamp.waiting)

        def read() -> None:
            self.board.flush()
            found = self.board.look()
            if self.board.memory is not self._memory:
                found = {**HeartbeatBoard.look_at(self._memory), **found}
            self._seen = {rank: stamp for rank, stamp in found.items() if rank != self.world.rank}

        self._aside(read)

    def _spent(self, stamp: Heartbeat) -> float:
        """Processor seconds of a rank; on this host the kernel tells, also for a rank whose watchdog cannot run."""
        if stamp.rank in self._peers.values():
            with suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{stamp.process}/stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return stamp.processor_seconds

    def _aside(self, action: Callable[[], None]) -> None:
        """Run `action`, which may block for ever, in a thread of its own; not while the one before still runs."""
        if self._looker is None or not self._looker.is_alive():
            self._looker = threading.Thread(target=action, daemon=True)
            self._looker.start()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _lost(self, dead: list[int]) -> list[Heartbeat]:
        """The stamps of those of the `dead` ranks that did not say why."""
        if not dead:
            return []
        found = {**HeartbeatBoard.look_at(self._memory), **HeartbeatBoard.look_at(self.board.memory)}
        return [found[rank] for rank in dead if rank in found and found[rank].state == RUNNING]

    def _end(self, last_words: Callable[[], None]) -> None:
        """Say the last words, as far as anyone listens, and end the process."""
        speaker = threading.Thread(target=last_words, daemon=True)
        speaker.start()
        speaker.join(_LAST_WORDS)
        os._exit(LOST_CODE)

    def _tell_of_the_dead(self, lost: list[Heartbeat]) -> None:
        self.told = True
        self.launcher_ends()
        self._tell(about_the_dead(lost, self.world.size, kills_for_memory() > self._killed_for_memory), lost[0])
        time.sleep(_LINGER)

    def _tell_of_the_launcher(self) -> None:
        time.sleep(_LINGER)
        self._tell(f"the launcher of {self.world.name} is gone ({self.phases.where()})", None)

    def _tell_of_the_late(self, now: float) -> None:
        self._note(GIVING_UP)
        self._leave_stack()
        time.sleep(min(_LINGER, self.limit))
        own = HeartbeatBoard.look_at(self.board.memory)[self.world.rank]
        stamps = dict(sorted({**self._seen, self.world.rank: own}.items()))
        silent = [rank for rank, (_, since) in self._pulses.items() if now - since > self.limit / 2]
        if self.world.rank:
            # What rank 0 says is heard where it counts: the launcher is on its host, and this one may be cut off.
            time.sleep(_LINGER)
        why, blamed = about_the_late(stamps, silent, self.world.size, self.limit, self.world.name)
        if self._parent and self._first_here():
            outlived_by_none(self._parent)
        self._tell(why + (f" (stacks in {self.folder[0]}/stuck-rank-*.txt)" if self.folder else ""), blamed)

    def _tell(self, why: str, about: Heartbeat | None) -> None:
        """Tell once: where there is no run folder to agree by, the lowest rank of the node speaks."""
        if self.folder or self._first_here():
            report_failure(why, self.folder, about.facts() if about else {})

    def _first_here(self) -> bool:
        """Whether this is the lowest living rank of its host."""
        living = [rank for handle, rank in self._peers.items() if not select.select([handle], [], [], 0)[0]]
        return self.world.rank <= min(living, default=self.world.rank)

    def _leave_stack(self) -> None:
        """Write where this rank stands, the stack of the thread that trains included, to the run folder."""
        if not self.folder:
            return

        def write() -> None:
            path = self.folder[0] / f"stuck-rank-{self.world.rank}.txt"
            with suppress(OSError), path.open("w", encoding="utf-8") as file:
                waiting = "waits for others" if waits.waiting else "does not wait for others"
                file.write(f"{self.world.name}, process {os.getpid()}, {self.phases.where()}: {waiting}\n\n")
                file.writelines(traceback.format_stack(sys._current_frames()[self._watched]))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(_LINGER)
