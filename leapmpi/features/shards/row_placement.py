"""Placement of a rank's feature rows for a GPU: by their bytes, the device's memory and `--feature-memory`.

In device memory where they fit; in pinned host memory, which the GPU reads, where they fit there; else in files with
the most read rows in memory, staged through two pinned buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.features.shards.device_shard import DeviceShard
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.mapped_shard import MappedShard
from leapmpi.features.shards.pinned_shard import PinnedShard
from leapmpi.features.shards.sparse_shard import SparseShard
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.system.memory import available_bytes

DEVICE, PINNED, STAGED = "device", "pinned", "staged"

_ROWS_SHARE, _TOPOLOGY_SHARE = 0.6, 0.5
"""Shares of the free device memory that rows of a rank may take, and, of what is free before them, the topology; ranks
that have the same device share alike."""

_HOST_SHARE = 0.5
"""The share of the host's free memory that rows of its ranks may take where they are pinned."""


def free_bytes(device: torch.device) -> float:
    """Return the free memory of `device`; that of the host where the CPU stands in for a GPU."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(available_bytes() or 0)


@dataclass(frozen=True)
class Sharers:
    """Numbers of ranks of this node with the device of this rank, and of all its ranks: they share the free memory."""

    device: int = 1
    node: int = 1


def sharers(world: World, device: torch.device) -> Sharers:
    """Count the ranks that share this rank's `device` and node. Collective."""
    # Ranks that each see one GPU all call it the first.
    of_gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    name = f"{device} {getattr(of_gpu, 'uuid', '')}"
    names = all_gather_values(world.node_comm, name)
    return Sharers(names.count(name), len(names))


def room_for_topology(device: torch.device, shared: Sharers) -> float:
    """Return the bytes of `device` that the topology may take, before rows are there."""
    return 0.0 if on_host(device) else free_bytes(device) * _TOPOLOGY_SHARE / shared.device


def choose_placement(nbytes: int, device_free: float, host_free: float, fits_feature_memory: bool) -> str:
    """Choose DEVICE, PINNED or STAGED for `nbytes` of rows, given free bytes of device and host. Pure."""
    if not fits_feature_memory:
        return STAGED
    if nbytes <= device_free * _ROWS_SHARE:
        return DEVICE
    return PINNED if nbytes <= host_free * _HOST_SHARE else STAGED


def load_shard(host: HostShard, device: torch.device, shared: Sharers) -> HostShard | DeviceShard:
    """Load the shard into the memory from which `device` reads it best.

    Sparse rows stay where they are, as do rows on a host without a GPU. Raises ResourceError where memory cannot be
    pinned.
    """
    if on_host(device) or isinstance(host, SparseShard):
        return host
    fits = not isinstance(host, MappedShard) or host.capacity == len(host)
    # Ranks that share a device or a node load at the same time: each counts on its share.
    free = free_bytes(device) / shared.device, float(available_bytes() or 0) / shared.node
    found = choose_placement(host.nbytes, *free, fits)
    if found == DEVICE:
        return DeviceShard(host, device)
    return PinnedShard(host, device) if found == PINNED else host
