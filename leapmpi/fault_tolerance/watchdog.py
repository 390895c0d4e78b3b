"""The watchdog: a thread of each rank that ends its process when the job cannot go on, and names the rank to blame.

It makes no MPI call. It ends the process when a rank of the same host died without a report, or when the launcher is
gone. It also does so when another rank has failed and this one still runs, and when no rank has made progress for
`limit` seconds, as `stall_detector` defines it. It knows other ranks by their heartbeats. Of ranks whose heartbeats it
cannot see it knows nothing, and it waits for them no longer than the limit (while loading, `PATIENCE` times as long).

What may block on a broken file system or a full pipe runs in further threads, for which the watchdog does not wait.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.launcher import launcher_size
from leapmpi.comm.polling import waits
from leapmpi.comm.shared_memory import map_shared
from leapmpi.comm.world import World
from leapmpi.dataset.file_stamps import FileStamps
from leapmpi.fault_tolerance import heartbeats
from leapmpi.fault_tolerance.heartbeats import ENDED, FAILED, GIVING_UP, REPORTING, RUNNING, Heartbeat, HeartbeatTable
from leapmpi.fault_tolerance.launcher_cleanup import end_launcher, end_launcher_after_failure
from leapmpi.fault_tolerance.report import describe_lost, describe_stall, report_failure
from leapmpi.fault_tolerance.stall_detector import PATIENCE, StallDetector
from leapmpi.fault_tolerance.thread_stacks import thread_stacks
from leapmpi.runs.file_names import HEARTBEATS_FILE, stuck_file
from leapmpi.runs.run_lock import RunLock
from leapmpi.system import channels
from leapmpi.system.kernel_cache import lock_waits
from leapmpi.system.memory import kills_for_memory
from leapmpi.system.phase_timers import PhaseTimers

LOST_CODE = 76
"""Exit code of a rank that ends because another was lost or no rank makes progress: start the job again."""

_TICK = 0.5
_LINGER = 2.0
"""Seconds that the launcher has to end the job by itself after a death, or other ranks to leave their stacks."""

_REPORT_TIME = 10.0
"""Seconds after which a process ends whether its report could be written or not."""

_ABORT_TIME = 30.0
"""Seconds within which the failure of another rank should have ended this process."""

_SUSPENDED = 5.0
"""A tick this late means that the process itself was stopped: what it did not see does not count."""


class HostPeers:
    """Processes of other ranks on this host that this process can see: those of its process name space."""

    def __init__(self) -> None:
        self.ranks: dict[int, int] = {}
        """The rank of each pidfd, which becomes readable when the process ends."""

    def find(self, world: World) -> None:
        """Open a pidfd of each peer. Collective."""
        namespace = os.stat("/proc/self/ns/pid").st_ino
        everyone = all_gather_values(world.node_comm, [world.rank, os.getpid(), namespace])
        for rank, process, its_namespace in everyone:
            if rank != world.rank and its_namespace == namespace:
                with suppress(OSError):
                    self.ranks[os.pidfd_open(process)] = rank

    def lowest_is(self, rank: int) -> bool:
        """Return whether `rank`, this process's, is the lowest living rank of the host."""
        living = [peer for handle, peer in self.ranks.items() if not select.select([handle], [], [], 0)[0]]
        return rank <= min(living, default=rank)

    def processor_seconds(self, heartbeat: Heartbeat) -> float:
        """Read the processor time of a rank.

        For peers the kernel knows it, also where a peer's watchdog cannot run; others have written it themselves.
        """
        if heartbeat.rank in self.ranks.values():
            with suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{heartbeat.process}/stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return heartbeat.processor_seconds

    def close(self) -> None:
        """Release the pidfds, so that the process keeps no descriptor of its peers. Local."""
        for handle in self.ranks:
            os.close(handle)


class Watchdog:
    """Watches over this rank and the others. `has_reported` is true once it has reported a lost rank."""

    table: HeartbeatTable
    """Table for this rank's heartbeats; `start` makes the first, in the memory of the node."""
    _node_table: HeartbeatTable

    def __init__(self, world: World, phases: PhaseTimers, limit: float) -> None:
        """Watch from `start` on; end the job after `limit` seconds without progress of any rank (0: never).

        `phases` says where this rank is.
        """
        self.world = world
        self.phases = phases
        self.limit = limit
        self.folder: Path | None = None
        self._place: Path | None = None
        """The run folder, once `enter` has named it."""
        self.has_reported = False
        self.inputs: list[FileStamps] = []
        """The files of the dataset that the job reads, once it does."""
        self.lock: RunLock | None = None
        """The lock of the run folder, which rank 0 of a job that trains holds; it is released at the end."""
        self._peers = HostPeers()
        self._parent = os.getppid() if launcher_size() else 0
        self._killed_for_memory = kills_for_memory()

        # What was seen of this rank and of others; and when, by rank, the pulse changed last.
        self._activity = StallDetector(limit)
        self._others: dict[int, Heartbeat] = {}
        self._pulses: dict[int, tuple[float, float]] = {}
        self._reader: threading.Thread | None = None
        self._flushed = self._last_tick = 0.0

        self._training_thread = 0
        self._deadline = float("inf")
        # The thread wakes by this file descriptor at the end, or at each tick.
        self._stop = os.eventfd(0)
        self._tick = min(_TICK, limit / 20) if limit else _TICK
        self._thread = threading.Thread(target=self._watch, name="leapmpi-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch. Collective."""
        size = heartbeats.table_bytes(self.world.size)
        memory = map_shared(self.world.node_comm, size, "leapmpi-stamps") or bytearray(size)
        self._node_table = HeartbeatTable(memory, self.world.rank)
        self._use(self._node_table)
        self._peers.find(self.world)
        self._training_thread = threading.get_ident()
        self._last_tick = time.monotonic()
        self._thread.start()

    def changed_input(self) -> str | None:
        """Describe a file of the dataset that changed since the job opened it; None without one."""
        return next((changed for files in self.inputs if (changed := files.changed())), None)

    def enter(self, folder: Path) -> None:
        """Write reports, and heartbeats if this rank can reach it, to the run folder from now on. Collective."""
        # A report may come while code of the user has changed the working directory.
        self.folder, self._place = folder, folder.absolute()
        created = None
        if self.world.rank == 0:
            # A folder that cannot hold the heartbeats is no reason to end: the nodes keep theirs.
            with suppress(OSError):
                created = heartbeats.create_heartbeats(folder / HEARTBEATS_FILE, self.world.size)
        token = all_gather_values(self.world.comm, created)[0]
        memory = token and heartbeats.map_heartbeats(folder / HEARTBEATS_FILE, token)
        if memory:
            self._use(HeartbeatTable(memory, self.world.rank, folder / HEARTBEATS_FILE))

    def stop(self) -> None:
        """Stop watching: this rank ends in order."""
        self.phases.on_change = None
        self._set_state(ENDED)
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        self._peers.close()
        os.close(self._stop)
        if self.lock:
            self.lock.release()

    def fail(self) -> None:
        """Record that this rank has failed, and will report it unless `another_reports`."""
        self._set_state(REPORTING)

    def another_reports(self) -> bool:
        """Return whether another failed rank reports: the lowest does, or the one that has begun to."""
        tables = self.table, self._node_table
        return any(table.any_lower_in(REPORTING) or table.any_other_in(FAILED) for table in tables)

    def announce_failure(self) -> None:
        """Announce that this rank will report its failure and abort the job; its process ends even if that hangs."""
        self._set_state(FAILED)
        self._deadline = time.monotonic() + _ABORT_TIME

    def clean_up_launcher(self, interrupted: bool = False) -> None:
        """Ensure, as this process ends with an error, that the launcher does not hang for long after it."""
        if self._parent and self._peers.lowest_is(self.world.rank):
            end_launcher_after_failure(self._parent, interrupted)

    def wait_for_the_end(self) -> NoReturn:
        """Wait until the watchdog, which `has_reported` a lost rank, ends this process."""
        self._thread.join()
        os._exit(LOST_CODE)

    def _use(self, table: HeartbeatTable) -> None:
        table.write_place(self.phases.current, self.phases.epoch, self.phases.iteration)
        self.table = table
        self.phases.on_change = table.write_place

    def _set_state(self, state: int) -> None:
        """Set this rank's state in its table, and in the memory of the node, where peers may look."""
        self.table.state = self._node_table.state = state

    # -- the thread ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Run the thread: at each tick write a pulse and judge; wake at once when a peer ends."""
        events = select.poll()
        for handle in (*self._peers.ranks, self._stop):
            events.register(handle, select.POLLIN)

        while True:
            ready = {handle for handle, _ in events.poll(self._tick * 1000)}
            if self._stop in ready:
                return
            now = time.monotonic()
            for handle in ready:
                events.unregister(handle)
            self._pulse(now)
            self._judge(now, sorted(self._peers.ranks[handle] for handle in ready))

    def _pulse(self, now: float) -> None:
        """Write a sign of life for others, and observe this rank."""
        # After a suspension of this process old observations mean nothing.
        if now - self._last_tick > self._tick + _SUSPENDED:
            self._activity.reset()
            self._pulses.clear()
        self._last_tick = now

        # What the watchdog itself uses of the processor is not work.
        spent = time.process_time() - time.thread_time()
        # Where another process compiles a kernel, this one is not stuck.
        moves = waits.moves + lock_waits.looked
        self.table.write_pulse(spent, moves, waits.begun, waits.waiting)
        self._activity.observe(now, self.world.rank, moves + self.table.changes, spent, waits.waiting)

        if now - self._flushed > 1.0:
            self._flushed = now
            self._run_aside(self._show_others)

    def _show_others(self) -> None:
        """Let other hosts see this rank's heartbeat, and other starts that of the lock. May block."""
        if self.world.nodes > 1:
            self.table.flush()
        if self.lock:
            self.lock.beat()

    def _judge(self, now: float, dead: list[int]) -> None:
        """End this process if there is a reason to; `dead` are ranks of this host that have just ended."""
        # Peers that ended without a report, or the launcher.
        lost = self._lost(dead)
        if lost:
            self._end(lambda: self._report_lost(lost))
        if self._parent and os.getppid() != self._parent:
            self._end(self._report_launcher)

        # What this job goes on to write would spoil the run of the start that has taken over.
        if self.lock and self.lock.lost:
            self._end(self._report_taken_over)

        # Another rank's failure, which should end this process soon.
        failed = self.table.any_other_in(FAILED) or self.table.any_other_in(GIVING_UP)
        if self._deadline == float("inf") and failed:
            self._leave_stack()
            self._deadline = now + _ABORT_TIME
        if now > self._deadline:
            self._end(lambda: None)

        if self.limit and self.table.state == RUNNING:
            self._judge_stall(now)

    def _judge_stall(self, now: float) -> None:
        """End this process if the job stalls. Other ranks are looked at only after this one has been still a while."""
        activity, rank = self._activity, self.world.rank
        if activity.quiet_seconds(rank, now) < self.limit / 4 and activity.is_moving(rank, now):
            activity.ranks = {rank: activity.ranks[rank]}
            self._others = {}
            return
        self._observe_others(now)
        if not activity.is_moving(rank, now) and not self._waits_with_reason(now):
            self._end(lambda: self._report_stall(now))

    def _waits_with_reason(self, now: float) -> bool:
        """Return whether this rank has reason to wait: others make progress, or may be loading unseen."""
        if not waits.waiting:
            return False
        if any(self._activity.is_moving(rank, now, 0.75 * self.limit) for rank in self._others):
            return True
        unseen = self.world.size - 1 > len(self._others)
        loading = self.phases.current in ("start", "load")
        return unseen and loading and self._activity.quiet_seconds(self.world.rank, now) < PATIENCE * self.limit

    def _observe_others(self, now: float) -> None:
        """Observe the other ranks by the heartbeats read last, and have them read again."""
        # A pulse that has changed is a sign of life.
        for rank, heartbeat in self._others.items():
            if self._pulses.get(rank, (0.0, 0.0))[0] != heartbeat.pulse:
                self._pulses[rank] = heartbeat.pulse, now
            moves = heartbeat.moves + heartbeat.changes
            self._activity.observe(now, rank, moves, self._peers.processor_seconds(heartbeat), heartbeat.waiting)

        # Ranks that cannot reach the run folder write to the node's memory.
        def read() -> None:
            self.table.flush()
            found = {**self._node_table.read(), **self.table.read()}
            self._others = {rank: heartbeat for rank, heartbeat in found.items() if rank != self.world.rank}

        self._run_aside(read)

    def _run_aside(self, action: Callable[[], None]) -> None:
        """Run `action`, which may block for ever, in another thread; not while the one before still runs."""
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=action, daemon=True)
            self._reader.start()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _lost(self, dead: list[int]) -> list[Heartbeat]:
        """Return the heartbeats of those of the `dead` ranks that have not reported why they ended."""
        if not dead:
            return []
        found = {**self._node_table.read(), **heartbeats.heartbeats_in(self.table.memory)}
        return [found[rank] for rank in dead if rank in found and found[rank].state == RUNNING]

    def _end(self, report: Callable[[], None]) -> None:
        """Run `report`, as far as it does not block, and end the process."""
        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        reporter.join(_REPORT_TIME)
        os._exit(LOST_CODE)

    def _report_lost(self, lost: list[Heartbeat]) -> None:
        self.has_reported = True
        self.clean_up_launcher()
        for_memory = kills_for_memory() > self._killed_for_memory
        why = describe_lost(lost, self.world.size, for_memory)
        self._report("; ".join(filter(None, [why, self.changed_input()])), lost[0])
        time.sleep(_LINGER)

    def _report_launcher(self) -> None:
        time.sleep(_LINGER)
        self._report(f"the launcher of {self.world.name} is gone ({self.phases.where()})", None)

    def _report_taken_over(self) -> None:
        """Report that another start owns the run folder now, without writing into it."""
        self._set_state(GIVING_UP)
        where = f"{self.folder}: " if self.folder else ""
        why = (
            f"{where}another start has taken over the run folder while {self.world.name} stood still; it goes on there"
        )
        report_failure(why, None, {})

    def _report_stall(self, now: float) -> None:
        # Let others write their stacks first: the report may end the job.
        still = self._activity.still_seconds(self.world.rank, now)
        self._set_state(GIVING_UP)
        self._leave_stack()
        time.sleep(min(_LINGER, self.limit))

        # What is known of all ranks, and who gave no sign of life.
        mine = heartbeats.heartbeats_in(self.table.memory)[self.world.rank]
        known = dict(sorted({**self._others, self.world.rank: mine}.items()))
        silent = [rank for rank, (_, since) in self._pulses.items() if now - since > self.limit / 2]

        # Rank 0's report matters most: the launcher is on its host, and this rank may be cut off.
        if self.world.rank:
            time.sleep(_LINGER)
        why, blamed = describe_stall(known, silent, self.world.size, still, self.limit, self.world.name)
        if self._parent and self._peers.lowest_is(self.world.rank):
            end_launcher(self._parent)
        self._report(why + (f" (stacks in {self.folder}/stuck-rank-*.txt)" if self.folder else ""), blamed)

    def _report(self, why: str, about: Heartbeat | None) -> None:
        """Report once: where there is no run folder that shows who has reported, the lowest rank of the node does."""
        if self.folder or self._peers.lowest_is(self.world.rank):
            report_failure(why, self._place, about.facts() if about else {})

    def _leave_stack(self) -> None:
        """Write where this rank is, what its threads wait for and their stacks, to the run folder."""
        if (folder := self._place) is None:
            return

        def write() -> None:
            path = folder / stuck_file(self.world.rank)
            with suppress(OSError), path.open("w", encoding="utf-8") as file:
                waiting = "waits for others" if waits.waiting else "does not wait for others"
                file.write(f"{self.world.name}, process {os.getpid()}, {self.phases.where()}: {waiting}\n")
                file.write(f"work ahead: {self.phases.where(channels.AHEAD)}\n")
                file.writelines(thread_stacks(self._training_thread))

        # In a thread of its own: a file system that hangs, perhaps the reason to write, must not hold up the watchdog.
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(_LINGER)
