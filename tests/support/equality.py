"""Rule R2 as a check: any strategy, on any ranks and partition, takes the gradient steps of a single process.

A `Case` is one choice of all options. `Runner` trains a few iterations of it, as the loop does, and keeps what each
gave; `check` compares with the single process, and with a count by hand of what was read and sent.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI

from leapmpi.comm.byte_counters import KINDS
from leapmpi.comm.flow_control import wait_for
from leapmpi.comm.world import World, start
from leapmpi.config.schema import Config
from leapmpi.config.setting import names_code
from leapmpi.dataset.topology import Topology, load_topology
from leapmpi.engine.ahead.prefetch_depth import prefetcher
from leapmpi.engine.ahead.prefetch_task import PrefetchTask
from leapmpi.engine.engine import Engine
from leapmpi.engine.placement import strategy_named
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.optimizer import Optimizer
from tests.support import datasets
from tests.support.draw_digest import block_edges, digest_edges, unique_edges
from tests.support.pairs import pair
from tests.support.traffic import expected_traffic, forecast_traffic

SEED = 3
TOLERANCE = 1e-10
ROUNDING = 1e-14
"""Share of the whole gradient's norm below which a tensor may differ: where its true gradient is zero (attention that
is the same for all neighbours), what is left are rounding errors."""

STRATEGIES = {
    "pull": {"strategy.name": "pull"},
    "leap": {"strategy.name": "leap", "strategy.time_steps": "1"},
    "leap, ring": {"strategy.name": "leap", "strategy.time_steps": "N"},
    "leap, ring of all steps but one": {
        "strategy.name": "leap",
        "strategy.time_steps": "N-1",
    },
    "leap, two steps": {"strategy.name": "leap", "strategy.time_steps": "2"},
    "naive": {"strategy.name": "naive"},
    "p3": {"strategy.name": "p3"},
}
FULL_BATCH = {name: {"strategy.name": name} for name in ("depcomm", "depcache", "hybrid")}
"""Strategies that train all training vertices at once, on all neighbours."""
OWNER = {"owner": {"strategy.name": "owner"}}
"""Mini-batches computed layer by layer."""
OWN_MODE = ("naive", "p3")
"""Strategies with a way of their own to compute the first layer."""
OWN = "own"
"""Their `remote`: the setting is left alone."""
MODES = ("raw", "sums", "projected", "partial", "mixed")
# Roots per batch and the (epoch, iteration) that are trained; -1 is the last iteration of an epoch.
BATCHES = {
    "even": (48, ((0, 0), (0, 1), (0, 2))),
    "one root in the last batch": (80, ((0, 0), (0, 2), (0, -1))),
    "three roots": (3, ((0, 0), (0, 40), (2, 1))),
    "larger than the training set": (1000, ((0, 0), (1, 0), (2, 0))),
}
DROPOUT = {
    "none": {"model.dropout": 0.0},
    "hidden": {"model.dropout": 0.5},
    "everywhere": {"model.dropout": 0.5, "model.input_dropout": 0.3},
}
SHAPE = {
    "plain": {},
    "layer norm": {"model.norm": "layer"},
    "residual": {"model.residual": True},
    "both": {"model.norm": "layer", "model.residual": True},
    "batch norm": {"model.norm": "batch"},
}
"""The last one meets fewer options."""
MODEL = {
    "gcn": {"model.name": "gcn"},
    "sage": {"model.name": "sage"},
    "sage max": {"model.name": "sage", "model.options.aggregate": "max"},
    "gat": {"model.name": "gat", "model.options.heads": 2},
}
DEEP = {
    "deepgcn": {"model.name": "deepgcn", "model.options.message_norm": True, "model.jumping": "cat"},
    "deepgcn softmax": {
        "model.name": "deepgcn",
        "model.options.aggregate": "softmax",
        "model.options.learn_scalars": True,
    },
    "deepgcn power": {"model.name": "deepgcn", "model.options.aggregate": "power", "model.options.learn_scalars": True},
    "deepgcn max": {"model.name": "deepgcn", "model.options.aggregate": "max"},
    "film": {"model.name": "film", "model.jumping": "max"},
    "gin": {"model.name": "gin", "model.options.learn_scalars": True},
    "gatv2": {"model.name": "gatv2", "model.options.heads": 2, "model.jumping": "cat"},
    "deepgcn mean": {"model.name": "deepgcn", "model.options.aggregate": "mean", "model.options.mlp_layers": 2},
    "film mean": {"model.name": "film", "model.options.aggregate": "mean"},
}
"""Models that meet fewer options."""
OPTIONS = {
    "strategy": tuple(STRATEGIES),
    "partition": datasets.PARTITIONS,
    "parts": (4, 7),
    "batch": tuple(BATCHES),
    "fanout": ("3,2", "10,10", "all,all", "4,3,2"),
    "model": tuple(MODEL),
    "dropout": tuple(DROPOUT),
    "shape": tuple(SHAPE)[:4],
    "labels": datasets.LABELS,
    "threads": (1, 2),
    "remote": (*MODES, OWN),
    "merge": ("paper", "balanced", "random"),
    "rows": ("copied", "in place"),
    "cache": ("none", "kept"),
    "prefetch": (0, 1, 2),
}
# What does not go together: modes that need a linear first layer, or one without a residual.
EXCLUDED = {
    *(pair("strategy", name, "remote", OWN) for name in STRATEGIES if name not in OWN_MODE),
    *(
        pair("strategy", name, "remote", mode)
        for name in OWN_MODE
        for mode in ("raw", "sums", "projected", "partial", "mixed")
    ),
    *(pair("strategy", name, "shape", shape) for name in OWN_MODE for shape in ("residual", "both")),
    *(pair("remote", "mixed", "model", model) for model in ("sage max", "gat", *DEEP) if model != "gin"),
    *(pair("remote", "sums", "model", model) for model in ("sage max", "gat", *DEEP) if model != "gin"),
    pair("remote", "sums", "labels", "single, sparse features"),
    *(pair("rows", "in place", "remote", mode) for mode in ("raw", "projected")),
    pair("rows", "in place", "dropout", "everywhere"),
    *(pair("rows", "in place", "model", model) for model in ("gat", "sage max", *DEEP)),
    *(pair("rows", "in place", "shape", shape) for shape in ("residual", "both")),
    *(
        pair("remote", mode, "shape", shape)
        for mode in ("sums", "projected", "partial", "mixed", OWN)
        for shape in ("residual", "both")
    ),
}

PLAINEST = {
    "strategy": "pull", "remote": "raw", "merge": "paper", "rows": "copied", "cache": "none", "prefetch": 0,

}  # fmt: skip
"""Options that a loaded dataset does not depend on, at their plainest."""


@dataclass(frozen=True)
class Case:
    """One value of each of OPTIONS."""

    strategy: str
    partition: str
    parts: int
    batch: str
    fanout: str
    model: str
    dropout: str
    shape: str
    labels: str
    threads: int
    remote: str
    merge: str
    rows: str
    cache: str
    prefetch: int
    sampler: str = "node-wise"
    """A sampler, and after commas its options."""
    topology: str = "node"
    """How the topology is held."""

    @property
    def dataset(self) -> datasets.Variant:
        """What it is trained on."""
        if self.partition == datasets.WHOLE:
            return datasets.whole(self.labels)
        return datasets.Variant(self.labels, self.partition, self.parts)

    def alone(self) -> "Case":
        """The same training in one process on the whole graph: what this case must agree with."""
        return dataclasses.replace(self, **PLAINEST, partition=datasets.WHOLE, parts=1, threads=1, topology="node")

    def config(self, base: Path, ranks: int) -> Config:
        """The config, in float64; time steps are cut down to `ranks`."""
        common = dataclasses.replace(self, **PLAINEST)
        settings = (STRATEGIES | FULL_BATCH | OWNER)[self.strategy] | {"strategy.merge": self.merge}
        if self.remote != OWN:
            settings["strategy.remote"] = self.remote
        if self.cache != "none":
            settings["strategy.cache"] = 0.1
        steps = {"N-1": max(1, ranks - 1), "2": min(2, ranks)}
        given = settings.get("strategy.time_steps", "auto")
        return _common_config(common, base).replaced(settings | {"strategy.time_steps": steps.get(given, given)})


@lru_cache(maxsize=32)
def _common_config(case: Case, base: Path) -> Config:
    """The config but for strategy and remote mode; kept, since thousands of cases need a few."""
    values = {
        "data": str(case.dataset.folder(base)),
        "model.hidden": 8,
        "sampling.fanout": case.fanout,
        "sampling.sampler": case.sampler.split(",")[0],
        "sampling.options": case.sampler.split(",")[1:],
        "train.batch_size": BATCHES[case.batch][0],
        # Not Adam, whose first steps blow rounding errors up where the true gradient is zero.
        "train.optimizer": "sgd",
        "train.momentum": 0.9,
        "train.lr": 0.05,
        "train.seed": SEED,
        "train.dtype": "float64",
        "run.topology": case.topology,
    }
    # Sparse features and weighted classes have nothing to do with each other; together they cost no cases.
    if "sparse" in case.labels:
        values["train.class_weights"] = "balanced"
    model = {"model.name": case.model} if names_code(case.model) else (MODEL | DEEP)[case.model]
    if case.dropout == "everywhere" and model["model.name"] in ("gat", "gatv2"):
        model = model | {"model.options.attention_dropout": 0.4}
    return Config.from_values(values | model | DROPOUT[case.dropout] | SHAPE[case.shape])


@dataclass
class Outcome:
    """What one iteration gave on this rank, before the optimizer's step."""

    loss: float
    gradients: dict[str, np.ndarray]
    edges: np.ndarray
    counted: dict[str, int] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    model: dict[str, np.ndarray] = field(default_factory=dict)
    """Of the last iteration: all parameters and running statistics after the optimizer's step."""


@dataclass
class Reference:
    """What one iteration gives in a single process."""

    loss: float
    gradients: dict[str, np.ndarray]
    digest: str
    model: dict[str, np.ndarray]


def steps(case: Case, loaded: Loaded) -> Iterator[tuple[int, int, np.ndarray]]:
    """(epoch, iteration, batch of renumbered roots) of the iterations of `case`."""
    size, chosen = BATCHES[case.batch]
    for epoch, iteration in chosen:
        cut = loaded.ctx.sampler.batches(loaded.dataset.splits.train, SEED, epoch, size)
        yield epoch, iteration % len(cut), cut[iteration % len(cut)]


def here(cases: list) -> list:
    """Those that this number of ranks takes: each case runs on 2, on 3, or on 4 ranks and on one."""
    return cases[(MPI.COMM_WORLD.size - 2) % 3 :: 3]


class Runner:
    """Trains cases on the ranks of `world`. Cases in a row that differ in strategy or batch only are loaded once."""

    def __init__(self, base: Path, world: World) -> None:
        self.base, self.world = base, world
        self._key: Case | None = None
        self._loaded: Loaded | None = None
        self._values: torch.Tensor | None = None

    def run(self, case: Case) -> list[Outcome]:
        """Train the iterations of `case`. Collective."""
        config = case.config(self.base, self.world.size)
        loaded = strategy_named(config.strategy.name).place(self.world, self._load(case))
        ctx = loaded.ctx
        engine = Engine(ctx, config.strategy)
        if case.rows == "in place":
            _read_in_place(ctx, engine.mode)
        cache = FeatureCache(config, self.world, loaded, engine)
        cache.choose()
        cache.fill()
        optimizer = Optimizer(config.train, ctx.parameters, 1)
        jobs = [
            PrefetchTask(batch if self.world.rank == 0 else None, epoch, iteration)
            for epoch, iteration, batch in steps(case, loaded)
        ]
        if isinstance(engine.preparation, FullBatchGraphs):
            # What is made once is made before the first iteration.
            engine.plan(jobs[0].batch, 0, 0)
            ctx.sampler.forget()
        trained, counts = [], []
        ctx.communicator.byte_counters.take()
        with prefetcher(engine, jobs, case.prefetch) as ahead:
            for number in range(len(jobs)):
                minibatch = ahead.next()
                ctx.parameters.gradients.zero_()
                loss = engine.forward_backward(minibatch)
                ctx.communicator.all_reduce(ctx.parameters.shared_gradients)
                trained.append((loss, ctx.parameters.gradients.clone(), minibatch))
                optimizer.step(number)
                counts.append(_counted(ctx))
        assert len(set(ctx.communicator.all_gather_objects(ctx.parameters.digest()))) == 1, (
            "replicas have drifted apart"
        )
        outcomes = [_outcome(*each, counted, loaded, engine) for each, counted in zip(trained, counts, strict=True)]
        outcomes[-1].model = ctx.parameters.by_name()
        assert outcomes[0].expected == _forecast(trained[0][-1], config, loaded), "the forecast is wrong"
        return outcomes

    def _load(self, case: Case) -> Loaded:
        key = dataclasses.replace(case, **PLAINEST, batch="even")
        if key != self._key:
            world = dataclasses.replace(self.world, threads=case.threads)
            config = case.config(self.base, world.size)
            dataset = open_for_training(config)
            self._loaded = load(config, dataset, world, torch.device("cpu"), PhaseTimers())
            self._values, self._key = self._loaded.ctx.parameters.values.clone(), key
        self._loaded.ctx.parameters.values.copy_(self._values)
        return self._loaded


def _read_in_place(ctx: RankContext, mode: ExchangeMode) -> None:
    """Let `mode` read rows where they lie, which it does by itself only for features at rest in the model's type."""
    holder = getattr(mode, "payload", mode)
    holder.builder.suit_in_place = lambda *sizes: True
    features = _in_place(ctx.features, np.arange(*ctx.rank_offsets[ctx.communicator.rank : ctx.communicator.rank + 2]))
    columns = ctx.columns and _in_place(ctx.columns, np.arange(ctx.rank_offsets[-1]))
    mode.ctx = holder.ctx = dataclasses.replace(ctx, features=features, columns=columns)


def _in_place(fetcher: FeatureFetcher, ids: np.ndarray) -> FeatureFetcher:
    fetcher = copy(fetcher)
    rows = fetcher.local(ids)
    fetcher.__dict__["whole"] = rows if fetcher.sparse else rows.clone()
    return fetcher


def _outcome(
    loss: float, gradients: torch.Tensor, minibatch, counted: dict[str, int], loaded: Loaded, engine: Engine
) -> Outcome:
    edges = unique_edges(
        np.concatenate([block_edges(micro_batch.blocks, _whole(loaded)) for micro_batch in minibatch.micro_batches])
    )
    named = {name: each.reshape(-1) for name, each in loaded.ctx.parameters.by_name(gradients).items()}
    return Outcome(loss, named, edges, counted, expected_traffic(minibatch, loaded, engine))


def _whole(loaded: Loaded) -> Topology:
    """The whole topology, whatever this rank holds of it."""
    if isinstance(loaded.topology, Topology):
        return loaded.topology
    own = loaded.topology.own
    return load_topology(loaded.dataset, own.edge_weight is not None, own.edge_time is not None)


def _counted(ctx) -> dict[str, int]:
    sent, read = ctx.communicator.byte_counters.take()
    return {**sent, **read}


def _forecast(minibatch, config: Config, loaded: Loaded) -> dict[str, int]:
    """What `leapmpi plan` says of this rank, had it drawn the very same neighbours: bytes by kind and rows by place."""
    comm, found = loaded.ctx.communicator.comm, None
    # Rank 0 alone holds the whole schedule, and counts for all ranks.
    if comm.rank == 0:
        planned = minibatch.schedule, minibatch.key
        traffic = forecast_traffic(config, loaded.dataset, _whole(loaded), comm.size, *planned)
        found = [
            {kind: int(traffic.sent[kind][rank].sum()) for kind in KINDS}
            | {place: int(rows[rank]) for place, rows in traffic.rows.items()}
            for rank in range(comm.size)
        ]
        for each in found:
            # Whether to stop is decided by the loop, which these cases do not run.
            each["control"] -= 8 * (comm.size - 1).bit_length()
    # Asleep: ranks that wait take no processor from the one that counts.
    wait_for(comm.Ibarrier)
    return comm.scatter(found)


def references(cases: Iterable[Case], base: Path, comm: MPI.Comm) -> dict[Case, list[Reference]]:
    """The single-process outcomes that `cases` need, shared out among the ranks. Collective."""
    wanted = list(dict.fromkeys(case.alone() for case in cases))
    runner = Runner(base, start(threads=1, comm=MPI.COMM_SELF))
    own = {case: [_reference(each) for each in runner.run(case)] for case in wanted[comm.rank :: comm.size]}
    # Asleep: a rank that is done takes no processor from the others.
    wait_for(comm.Ibarrier)
    return {case: found for part in comm.allgather(own) for case, found in part.items()}


def _reference(outcome: Outcome) -> Reference:
    return Reference(outcome.loss, outcome.gradients, digest_edges(outcome.edges), outcome.model)


def check(case: Case, outcomes: list[Outcome], wanted: list[Reference], comm: MPI.Comm) -> float:
    """Assert that `outcomes` are those of the single process; the largest relative difference seen. Collective."""
    assert len(outcomes) == len(wanted)
    worst = 0.0
    for number, (got, alone) in enumerate(zip(outcomes, wanted, strict=True)):
        where = f"{case}, step {number}"
        assert got.gradients.keys() == alone.gradients.keys()
        whole = np.linalg.norm(np.concatenate(list(alone.gradients.values())))
        for name, gradient in alone.gradients.items():
            norm = np.linalg.norm(gradient)
            difference = np.linalg.norm(got.gradients[name] - gradient)
            allowed = max(TOLERANCE * norm, ROUNDING * whole)
            assert difference <= allowed, f"{where}: {name} differs by {difference} of {norm}, of {whole} in all"
            worst = max(worst, difference / max(norm, whole * ROUNDING / TOLERANCE))
        assert got.counted == got.expected, where
        loss = sum(comm.allgather(got.loss))
        assert abs(loss - alone.loss) <= TOLERANCE * abs(alone.loss), f"{where}: loss {loss}, alone {alone.loss}"
        union = np.concatenate(comm.allgather(got.edges))
        assert digest_edges(union) == alone.digest, f"{where}: sampled edges differ"
    _check_model(case, outcomes[-1].model, wanted[-1].model)
    return worst


def _check_model(case: Case, model: dict[str, np.ndarray], alone: dict[str, np.ndarray]) -> None:
    """Assert that all parameters and running statistics after training are those of the single process."""
    assert model.keys() == alone.keys()
    for name, wanted in alone.items():
        # A parameter without a true gradient, which stays at 0, has rounding errors of the gradients of the others.
        allowed = TOLERANCE * max(np.linalg.norm(wanted), 1e-4)
        difference = np.linalg.norm(model[name] - wanted)
        assert difference <= allowed, f"{case}: {name} is apart by {difference} after training"
