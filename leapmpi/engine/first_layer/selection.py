"""Which remote mode serves: the one asked for, the one predicted to be fastest, or the one that moves least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.registry import Registry

if TYPE_CHECKING:
    from leapmpi.engine.context import RankContext
    from leapmpi.engine.first_layer.base import FirstLayerMode
    from leapmpi.engine.minibatch import MiniBatch
    from leapmpi.plan.cost_model import Rates

_COPYING = 0.5
"""Share of the time of a fetch that no overlap can hide: packing, and the processor's part in sending."""

_CLEARLY = 0.8
"""A mode that moves more bytes must promise to take less than this share of the time of the one that moves fewest."""

MODES = ("partial", "raw", "projected")
"""Equal bytes go to the first of these."""


def mode_class(name: str) -> type[FirstLayerMode]:
    """The class of the remote mode called `name`. Raises ConfigError for an unknown one."""
    return Registry("remote mode", "leapmpi.engine.first_layer.modes").load(name).MODE


def remote_mode(name: str, ctx: RankContext) -> FirstLayerMode:
    """The remote mode called `name`. Raises ConfigError for one that cannot serve the model."""
    mode = mode_class(name)
    if reason := mode.refusal(ctx.model):
        raise ConfigError(f"strategy.remote: {name} cannot serve this model: {reason}; use raw or auto")
    return mode(ctx)


def serving(model: Any) -> list[str]:
    """The modes that can serve `model`."""
    return [name for name in MODES if not mode_class(name).refusal(model)]


def compute_seconds_of(minibatch: MiniBatch, rates: Rates) -> float:
    """Predicted seconds that this rank computes in `minibatch`. Local."""
    rows = sum(micro_batch.blocks[-1].n_src for micro_batch in minibatch.micro_batches)
    edges = sum(block.edges for micro_batch in minibatch.micro_batches for block in micro_batch.blocks)
    return rows * rates.row + edges * rates.edge + len(minibatch.micro_batches) * rates.step


def bytes_by_mode(minibatch: MiniBatch, ctx: RankContext) -> dict[str, np.ndarray]:
    """Bytes that each mode that can serve would bring to each rank for `minibatch`: int64[ranks] by mode. Collective.

    Counted from blocks, so that a repeated run finds the same.
    """
    modes = serving(ctx.model)
    mine = [remote_mode(name, ctx).predicted_bytes(minibatch) for name in modes]
    return dict(zip(modes, ctx.communicator.all_gather_rows(np.array(mine, np.int64)).T, strict=True))


def fewest_bytes(found: dict[str, np.ndarray]) -> str:
    """The mode that moves the fewest bytes over all ranks; the first of equals."""
    return min(found, key=lambda name: int(found[name].sum()))


def least_seconds(found: dict[str, np.ndarray], compute: float, rates: Rates) -> tuple[str, dict[str, float]]:
    """The mode whose iteration is predicted to be shortest, and the seconds by mode. Pure.

    The one that moves the fewest bytes stands unless another is faster by a fifth: noise shall not decide.
    Raw rows can be fetched while the iteration before takes its `compute` seconds, but for the half of a fetch that is
    packing and copying; the others travel within the iteration, there and back.
    """
    seconds = {}
    for name, counts in found.items():
        moved = float(counts.max()) * rates.byte
        if name == "raw":
            seconds[name] = compute + max(moved - compute, _COPYING * moved)
        else:
            seconds[name] = compute + moved + 2 * rates.collective
    standing, fastest = fewest_bytes(found), min(seconds, key=seconds.__getitem__)
    return (fastest if seconds[fastest] < _CLEARLY * seconds[standing] else standing), seconds
