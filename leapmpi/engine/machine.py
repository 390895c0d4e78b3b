"""The rates of the machine on which a job runs: kept ones where `leapmpi doctor --measure` has been here."""

from __future__ import annotations

import torch

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World, library_name, load_mpi
from leapmpi.errors import LaunchError
from leapmpi.plan.machine_rates import MachineRates, kept_rates, machine_key, processor_name


def kept_for(ranks: int, on_gpu: bool) -> tuple[MachineRates, int]:
    """Return kept rates for jobs of `ranks` ranks on nodes like this one, and on how many nodes they were measured.
    Local, without a job.

    Of several, those on most nodes are taken; without any, the documented constants and 0. Raises ConfigError where
    the file of kept rates is damaged.
    """
    computes = torch.cuda.get_device_name() if on_gpu and torch.cuda.is_available() else processor_name()
    try:
        library = library_name(load_mpi())
    except LaunchError:
        return MachineRates(), 0
    for nodes in range(ranks, 0, -1):
        if found := kept_rates(machine_key(computes, library, ranks, nodes)):
            return found, nodes
    return MachineRates(), 0


def key_of(world: World, device: torch.device) -> str:
    """Return the name under which rates of this job's machine are kept, as rank 0 sees it. Local."""
    computes = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    return machine_key(computes, library_name(load_mpi()), world.size, world.nodes)


def machine_rates(world: World, device: torch.device) -> MachineRates:
    """Return kept rates for jobs like this one, else the documented constants; those of rank 0 on all ranks.
    Collective.

    Raises ConfigError, on all ranks, where the file of kept rates is damaged.
    """
    found = world.on_root(lambda: kept_rates(key_of(world, device)))
    values = all_gather_values(world.comm, found.to_values() if found else None)[0]
    return MachineRates.from_values(values) if values else MachineRates()
