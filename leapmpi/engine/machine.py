"""The rates of the machine on which a job runs: kept ones where `leapmpi doctor --measure` has been here."""

from __future__ import annotations

import torch

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World, library_name, load_mpi
from leapmpi.errors import LaunchError
from leapmpi.plan.machine_rates import MachineRates, kept_rates, machine_key, processor_name


def kept_for(ranks: int, on_gpu: bool) -> MachineRates:
    """Return kept rates for jobs of `ranks` ranks on one node like this, else the documented constants. Local, without
    a job.

    Raises ConfigError where the file of kept rates is damaged.
    """
    computes = torch.cuda.get_device_name() if on_gpu and torch.cuda.is_available() else processor_name()
    try:
        library = library_name(load_mpi())
    except LaunchError:
        return MachineRates()
    return kept_rates(machine_key(computes, library, ranks, 1)) or MachineRates()


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
