"""The choice of the exchange mode: the requested one, the one predicted to be fastest, or the one that moves least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.mode import ExchangeMode, ModeMember
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.layer import Layer
from leapmpi.nn.model import Model
from leapmpi.plan.cost_model import Rates
from leapmpi.registry import Registry

MODES = Registry("remote mode", "leapmpi.exchange.modes", ModeMember)

COPYING = 0.5
"""Share of the time of a fetch that no overlap hides: packing, and the processor's part in sending."""

_CLEARLY = 0.8
"""A mode that moves more bytes must promise less than this fraction of the time of the mode that moves fewest."""


def mode_class(name: str) -> type[ExchangeMode]:
    """Return the class of the exchange mode called `name`. Raises ConfigError for an unknown one."""
    return MODES.load(name).mode


def exchange_mode(name: str, ctx: RankContext) -> ExchangeMode:
    """Return the exchange mode called `name`. Raises ConfigError for one that cannot feed the model's first layer."""
    if reason := _refusal(name, ctx.model.layers[0], ctx.features):
        raise ConfigError(f"strategy.remote: {name} cannot serve this model: {reason}; use raw or auto")
    return mode_class(name)(ctx)


def serving_modes(layer: Layer, features: FeatureFetcher | None = None, *, by_root: bool = False) -> list[str]:
    """Return the modes that can feed `layer` from `features`, in the order in which equal bytes are decided.

    by_root: whether roots bound draws one by one, so that a vertex may be a destination for several bounds.
    """
    names = [name for name in MODES.names() if not _refusal(name, layer, features)]
    names = [name for name in names if mode_class(name).serves_bounds or not by_root]
    return sorted(names, key=lambda name: (mode_class(name).order_for(layer), name))


def modes_of(ctx: RankContext) -> list[str]:
    """Return the modes that auto compares for the first layer of `ctx`; of equal bytes the first one wins."""
    layer = ctx.model.layers[0]
    serving = serving_modes(layer, ctx.features, by_root=ctx.sampler.drawing.by_root)
    return [name for name in serving if mode_class(name).offered_to_auto(layer)]


def common_modes(layers: Sequence[Layer], features: FeatureFetcher) -> list[str]:
    """List the modes that feed the models of all `layers` from one fetch, those that save most work first."""
    serving = [serving_modes(layer, features) for layer in layers]
    names = [name for name in serving[0] if all(name in each for each in serving)]
    return [name for name in reversed(names) if mode_class(name).serves_all(layers)]


def refused_modes(layer: Layer, features: FeatureFetcher) -> dict[str, str]:
    """Return the modes that cannot feed `layer` from `features`, and why."""
    reasons = {name: _refusal(name, layer, features) for name in MODES.names()}
    return {name: reason for name, reason in reasons.items() if reason}


def _refusal(name: str, layer: Layer, features: FeatureFetcher | None) -> str | None:
    """Return why the mode called `name` cannot feed `layer`, or cannot from `features`."""
    mode = mode_class(name)
    return mode.refusal(layer) or (mode.refusal_of_rows(features) if features is not None else None)


def compute_seconds_of(minibatch: MiniBatch, rates: Rates) -> float:
    """Predict the seconds that this rank computes in `minibatch`. Local."""
    rows = sum(micro_batch.blocks[-1].n_src for micro_batch in minibatch.micro_batches)
    edges = sum(block.edges for micro_batch in minibatch.micro_batches for block in micro_batch.blocks)
    return rows * rates.row + edges * rates.edge + len(minibatch.micro_batches) * rates.step


def bytes_by_mode(minibatch: MiniBatch, ctx: RankContext, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Count the bytes that each of the modes `names` would bring to each rank for `minibatch`. Collective.

    Returns int64[ranks] by mode. `names` is None for all that can serve. Bytes are counted from blocks, so a repeated
    run finds the same.
    """
    if names is None:
        names = modes_of(ctx)
    local = [exchange_mode(name, ctx).predicted_bytes(minibatch) for name in names]
    gathered = ctx.communicator.all_gather_rows(np.array(local, np.int64))
    return dict(zip(names, gathered.T, strict=True))


def fewest_bytes(found: Mapping[str, np.ndarray]) -> str:
    """Return the mode that moves the fewest bytes over all ranks, counted with its surcharge; the first of equals."""
    return min(found, key=lambda name: int(found[name].sum()) * mode_class(name).surcharge)


def least_seconds(
    found: Mapping[str, np.ndarray], compute: float, rates: Rates, learned: bool = False
) -> tuple[str, dict[str, float]]:
    """Return the mode whose iteration is predicted to be shortest, and the seconds by mode. Local.

    The mode that moves the fewest bytes wins unless another is faster by a fifth: noise must not decide. Rows that
    need no weights can be fetched during the `compute` seconds of the previous iteration, except for the half of a
    fetch that is packing and copying. Computed rows and `learned` ones travel within the iteration, in both directions.
    """
    # The busiest rank decides: the others wait for it at the next collective.
    seconds = {}
    for name, counts in found.items():
        moved = float(counts.max()) * rates.byte * mode_class(name).surcharge
        if learned or mode_class(name).needs_weights:
            seconds[name] = compute + moved + 2 * rates.collective
        else:
            seconds[name] = compute + max(moved - compute, COPYING * moved)
    standing, fastest = fewest_bytes(found), min(seconds, key=seconds.__getitem__)
    return (fastest if seconds[fastest] < _CLEARLY * seconds[standing] else standing), seconds


def leading_model(models: Sequence[Model]) -> int:
    """Choose the model that fetches inputs for all, by number: one that reads own rows if any does, then the largest.

    Pure.
    """
    sizes = [sum(each.numel() for each in model.parameters()) for model in models]
    return max(range(len(models)), key=lambda number: (models[number].layers[0].sums.needs_own, sizes[number], -number))


def modes_for(models: Sequence[Model], features: FeatureFetcher, config: Config) -> list[str]:
    """Return the exchange modes that `config` leaves open for `models`, which share what is fetched from `features`.

    Raises ConfigError where it names one that does not serve all.
    """
    names, requested = common_modes([model.layers[0] for model in models], features), config.strategy.remote
    if requested in ("auto", *names):
        return names if requested == "auto" else [requested]
    raise ConfigError(
        f"strategy.remote: {requested} cannot serve these models together: their first layers do not read the same "
        "sums, known before the weights and without dropout of inputs; use raw or auto"
    )
