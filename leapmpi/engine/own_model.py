"""A user's own module is examined before training, on a small batch of real rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.schema import Config, models_of
from leapmpi.config.setting import names_code
from leapmpi.config.user_code import digest_of
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.calibration import local_roots
from leapmpi.engine.edge_features import fetch_edge_features
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.exchange.minibatch import MicroBatch
from leapmpi.nn.model import Model, model_of
from leapmpi.nn.own.batch_check import Sample, examine
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.rows import dense
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.system.counter_rng import TRAIN, DrawKey

_ROOTS = 64
_BYTES = 64 << 20
"""Bytes that the rows may take in float64."""

_RESULT = "the result of forward"

Contents = dict[str, list[list[float]]]
"""By name of a parameter or buffer: its shape, and three numbers that depend on all of its values."""


def code_of(config: Config) -> dict[str, str]:
    """Return the digest of the file of each model and sampler that is a user's own, by the setting's value."""
    names = [config.sampling.sampler, *(each.model.name for each in models_of(config))]
    return {name: digest_of(name) for name in names if names_code(name)}


def changed_code(config: Config, about: Mapping[str, Any]) -> list[str]:
    """Return sentences about code that has changed since the file or checkpoint with the values `about` was written."""
    before = about.get("code", {})
    return [
        f"{name.rpartition(':')[0]} has changed since then"
        for name, digest in code_of(config).items()
        if before.get(name, digest) != digest
    ]


def model_on_all(config: Config, dataset: Dataset, world: World) -> Model:
    """Return the model of `config`, the first of several, alike on all ranks. Collective.

    Raises ConfigError, on all ranks alike.
    """
    model = world.on_all(partial(model_of, models_of(config)[0], dataset))
    check_ranks_agree(config, dataset, model, world)
    return model


def check_ranks_agree(config: Config, dataset: Dataset, model: Model, world: World) -> None:
    """Check that users' modules begin alike on all ranks; `model` is the first of `config`. Collective.

    Raises ConfigError, on all ranks alike, for a parameter, buffer or result for an example that differs in shape or by
    more than rounding.
    """
    models = models_of(config)
    for number, each in enumerate(models):
        if not names_code(each.model.name):
            continue
        begun = world.on_all(partial(model_of, each, dataset)) if number else model
        by_rank = all_gather_values(world.comm, _contents(begun))
        world.on_all(partial(_compare, each.model.name, by_rank))


def _compare(named: str, by_rank: Sequence[Contents]) -> None:
    """Raise ConfigError where the contents of the model `named` differ between two ranks."""
    first = by_rank[0]
    for rank, other in enumerate(by_rank):
        # What causes another result goes before it.
        for name in sorted(first | other, key=_RESULT.__eq__):
            if name not in first or name not in other or not _alike(first[name], other[name]):
                raise ConfigError(
                    f"--model {named}: {name} differs between ranks 0 and {rank} before training; make it the same on "
                    "all, whatever the rank, host and time"
                )


def _contents(model: Model) -> Contents:
    """Return the contents of `model`: a norm and a weighted sum of finite values, and where the others are.

    The result of `forward` for an example is one of them.
    """
    found: Contents = {}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    if isinstance(model, OwnModel) and model.tried is not None:
        tensors.append((_RESULT, model.tried))
    for name, each in tensors:
        values = torch.view_as_real(each.detach()) if each.is_complex() else each.detach()
        values = values.double().flatten()
        # A norm alone would miss values that have changed places.
        weights = torch.arange(len(values), dtype=torch.float64, device=values.device).cos()
        finite = values.isfinite()
        values = torch.where(finite, values, 0.0)
        numbers = [float(torch.linalg.vector_norm(values)), float(values @ weights), float(weights[~finite].sum())]
        found[name.removeprefix("module.")] = [list(each.shape), numbers]
    return found


def _alike(a: list[list[float]], b: list[list[float]]) -> bool:
    # Processors of several kinds may round otherwise.
    return a[0] == b[0] and a[1][2] == b[1][2] and math.dist(a[1], b[1]) <= 1e-3 * a[1][0]


def findings(config: Config, loaded: Loaded, world: World) -> list[str]:
    """Return sentences, on rank 0, about results of users' modules that depend on where roots are trained.
    Collective.
    """
    own = [each for each in models_of(config) if names_code(each.model.name)]
    if not own:
        return []
    ctx = loaded.ctx
    key = DrawKey(TRAIN, ctx.seed, 0, 0)

    # Rank 0 draws; all bring it the rows.
    candidates = loaded.dataset.splits.train if ctx.task.roots == "vertices" else np.arange(loaded.dataset.vertices)
    if ctx.sampler.sharded:
        # Rank 0 draws alone, from its own lists.
        candidates = local_roots(ctx, candidates)
    roots = _roots(ctx, candidates, key) if world.rank == 0 else np.empty(0, np.int64)
    batches = [roots, roots[::2], roots[1::2]] if len(roots) > 1 else [roots]
    drawn = [ctx.sampler.sample_here(key, each, roots) for each in batches] if world.rank == 0 else []
    ids = np.unique(np.concatenate([blocks[-1].src for blocks in drawn])) if drawn else np.empty(0, np.int64)
    fetched = ctx.features.fetch(ids)
    rows = (fetched if isinstance(fetched, TypedMatrix) else dense(fetched)).to(torch.float64)
    batch_of = [MicroBatch(each, blocks, None) for each, blocks in zip(batches, drawn, strict=False)]
    fetch_edge_features(ctx, batch_of)
    # Bytes of this check are no traffic of training.
    ctx.communicator.byte_counters.take()

    def sample(number: int) -> Sample:
        blocks = drawn[number]
        place = torch.from_numpy(np.searchsorted(ids, blocks[-1].src)).to(rows.device)
        return batch_of[number].on_device(ctx.device), rows[place]

    def examined() -> list[str]:
        found: dict[str, None] = {}
        for each in own:
            model = model_of(each.replaced({"train.dtype": "float64"}), loaded.dataset).to(ctx.device)
            if isinstance(model, OwnModel):
                found |= dict.fromkeys(examine(model, sample(0), [sample(n) for n in range(1, len(drawn))], key))
        return list(found)

    return world.on_root(examined) or []


def _roots(ctx: RankContext, candidates: np.ndarray, key: DrawKey) -> np.ndarray:
    """Return up to 64 of `candidates`, fewer where their sample has too many rows."""
    roots = candidates[:_ROOTS]
    while len(roots) > 2:
        rows = ctx.sampler.sample_here(key, roots, roots)[-1].n_src
        if rows * ctx.features.shard.width * 8 <= _BYTES:
            break
        roots = roots[: len(roots) // 2]
    return np.sort(roots)
