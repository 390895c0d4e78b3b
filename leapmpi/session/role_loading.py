"""Loading by role: ranks that prepare load the dataset, as a smaller job would; ranks that compute the model alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.mpi_communicator import MPICommunicator, of_job
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.disaggregated.shipping import Shipping
from leapmpi.engine.own_model import check_ranks_agree
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.nn.kernels.kernel_choice import set_stand_in
from leapmpi.nn.model import model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.task import task_of
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.plan.roles import Roles
from leapmpi.sampling.block import Block
from leapmpi.sampling.sampler import Drawn, Sampler
from leapmpi.session.label_statistics import scale_values, set_scale
from leapmpi.session.setup import load, use_threads
from leapmpi.system.allocator import keep_freed_memory
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.phase_timers import PhaseTimers


@dataclass
class LoadedByRole(Loaded):
    """Loaded data of a rank with one role.

    `ctx` has the communicator of all ranks, `of_role` that of the ranks of this role, which are `role`.
    """

    roles: Roles = field(kw_only=True)
    role: World = field(kw_only=True)
    of_role: RankContext = field(kw_only=True)
    shipping: Shipping = field(kw_only=True)

    @property
    def prepares(self) -> bool:
        """Whether this rank prepares mini-batches."""
        return self.roles.prepares(self.ctx.rank)


class AbsentSampler(Sampler):
    """Stands for the sampler on ranks that draw nothing: it knows how many batches an epoch has, and who makes them."""

    def __init__(self, fanouts: tuple[int, ...], threads: int, batches: int, supplies_roots: bool) -> None:
        self.topology = Topology(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
        self.fanouts, self.threads, self.supplies_roots = fanouts, threads, supplies_roots
        self._batches = batches

    def iterations(self, train: np.ndarray, batch_size: int) -> int:
        """Return the number given by the sampler of the preparation ranks."""
        return self._batches

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        raise NotImplementedError("a compute rank draws nothing")

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        raise NotImplementedError("a compute rank draws nothing")


def load_by_role(
    config: Config,
    dataset: Dataset,
    world: World,
    role: World,
    device: torch.device,
    phases: PhaseTimers,
    rates: MachineRates,
) -> LoadedByRole:
    """Load what this rank's role needs; `role` are the ranks of `world` that have the same role. Collective.

    Raises as `load` does, on all ranks alike.
    """
    roles = Roles(world.size, config.strategy.prepare_ranks)
    prepares = roles.prepares(world.rank)
    part = None
    if prepares:
        # Its work is the host's, whatever the others compute on.
        set_stand_in(False)
        held_whole = config.replaced({"run.topology": "node"})
        cpu = torch.device("cpu")
        part = world.on_all(lambda: load(held_whole, dataset, role, cpu, phases, rates))
    else:
        # The other role loads now; errors are agreed upon by all ranks.
        world.on_all(lambda: None)

    # What compute ranks need to know of the data.
    facts = all_gather_values(world.comm, _facts(config, part) if part else None)[roles.computing]
    if part is None:
        part = world.on_all(lambda: _without_data(config, dataset, role, device, phases, rates, facts))
    else:
        world.on_all(lambda: None)
    of_role = part.ctx
    check_ranks_agree(config, dataset, of_role.model, world)
    everyone, apart = MPICommunicator(world.comm), world.ahead_comms[0]
    between = MPICommunicator(apart, ahead=(apart, apart))
    between.join(everyone, np.arange(world.size))
    first = roles.computing if prepares else 0
    of_job(of_role.communicator).join(everyone, np.arange(first, first + role.size))
    dtype = getattr(torch, config.train.parameter_dtype)
    shipping = Shipping(between, roles, dataset.feature_dim, dtype, pinned=of_role.device.type == "cuda")
    keep_freed_memory()
    ctx = replace(of_role, communicator=everyone)
    return LoadedByRole(**{**vars(part), "ctx": ctx}, roles=roles, role=role, of_role=of_role, shipping=shipping)


def _facts(config: Config, part: Loaded) -> dict[str, Any]:
    """Return facts about labels and sampler, as plain values."""
    ctx = part.ctx
    weights = ctx.task.class_weights
    return {
        "batches": ctx.sampler.iterations(part.dataset.splits.train, config.train.batch_size),
        "supplies_roots": ctx.sampler.supplies_roots,
        "class_weights": None if weights is None else weights.tolist(),
        "scale": scale_values(ctx),
    }


def _without_data(
    config: Config,
    dataset: Dataset,
    role: World,
    device: torch.device,
    phases: PhaseTimers,
    rates: MachineRates,
    facts: dict[str, Any],
) -> Loaded:
    """Return what a compute rank holds: the model, and no vertex. Local."""
    # Its shards are empty: the same context as on other ranks, so that engine and trainer need no case for roles.
    use_threads(config, role.threads)
    communicator = MPICommunicator(role.comm, ahead=role.ahead_comms)
    dtype, nobody = getattr(torch, config.train.parameter_dtype), np.zeros(role.size + 1, np.int64)
    model, task = model_of(config, dataset).to(device), task_of(config, dataset)

    def fetcher(width: int, kind: str, dtype: torch.dtype) -> FeatureFetcher:
        nothing = HostShard([np.empty((0, width), np.float32)], 0)
        return FeatureFetcher(communicator, nothing, nobody, device, dtype, kind, phases)

    fanouts = config.sampling.fanout
    sampler = AbsentSampler(fanouts, role.threads, facts["batches"], facts["supplies_roots"])
    ctx = RankContext(
        communicator=communicator,
        phases=phases,
        sampler=sampler,
        model=model,
        task=task,
        parameters=ParameterLayout(model),
        features=fetcher(dataset.feature_dim, "features", dtype),
        labels=fetcher(1, "labels", task.label_dtype(dtype)),
        rank_offsets=nobody,
        device=device,
        seed=config.train.seed,
        machine=rates,
    )
    # Statistics of labels come from the ranks that hold these.
    if facts["class_weights"] is not None:
        task.class_weights = torch.tensor(facts["class_weights"], dtype=dtype, device=device)
    if facts["scale"] is not None:
        set_scale(ctx, np.array(facts["scale"]))
    held = "on the ranks that prepare"
    return Loaded(dataset, sampler.topology, held, range(0), nobody, 0, ctx)
