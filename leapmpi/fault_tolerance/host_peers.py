"""The processes of the other ranks of this host: which of them live, and what they use of the processor."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.fault_tolerance.heartbeats import Heartbeat


class HostPeers:
    """Ranks of the same host whose processes this process can see: those of its process name space."""

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
        """Whether `rank`, this process's, is the lowest living rank of the host."""
        living = [peer for handle, peer in self.ranks.items() if not select.select([handle], [], [], 0)[0]]
        return rank <= min(living, default=rank)

    def processor_seconds(self, heartbeat: Heartbeat) -> float:
        """Processor time of a rank.

        For peers the kernel knows it, also where a peer's watchdog cannot run; others have written it themselves.
        """
        if heartbeat.rank in self.ranks.values():
            with suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{heartbeat.process}/stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return heartbeat.processor_seconds

    def close(self) -> None:
        for handle in self.ranks:
            os.close(handle)
