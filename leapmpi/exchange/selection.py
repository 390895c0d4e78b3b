"""Which exchange mode serves: the one requested, the one predicted to be fastest, or the one that moves least."""

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
"""Share of the time of a fetch that no overlap can hide: packing, and the processor's part in sending."""

_CLEARLY = 0.8
"""A mode that moves more bytes must promise to take less than this share of the time of the one that moves fewest."""


def mode_class(name: str) -> type[ExchangeMode]:
    """The class of the exchange mode called `name`. Raises ConfigError for an unknown one."""
    return MODES.load(name).mode


def exchange_mode(name: str, ctx: RankContext) -> ExchangeMode:
    """The exchange mode called `name`. Raises ConfigError for one that cannot feed the model's first layer."""
    if reason := _refusal(name, ctx.model.layers[0], ctx.features):
        raise ConfigError(f"strategy.remote: {name} cannot serve this model: {reason}; use raw or auto")
    return mode_class(name)(ctx)


def serving_modes(layer: Layer, features: FeatureFetcher | None = None) -> list[str]:
    """The modes that can feed `layer` from `features`, in the order in which equal bytes are decided."""
    names = [name for name in MODES.names() if not _refusal(name, layer, features)]
    return sorted(names, key=lambda name: (mode_class(name).order_for(layer), name))


def common_modes(layers: Sequence[Layer], features: FeatureFetcher) -> list[str]:
    """The modes that feed the models of all `layers` by what they fetch once, those that save most work first."""
    serving = [serving_modes(layer, features) for layer in layers]
    names = [name for name in serving[0] if all(name in each for each in serving)]
    return [name for name in reversed(names) if mode_class(name).serves_all(layers)]


def refused_modes(layer: Layer, features: FeatureFetcher) -> dict[str, str]:
    """The modes that cannot feed `layer` from `features`, and why."""
    reasons = {name: _refusal(name, layer, features) for name in MODES.names()}
    return {name: reason for name, reason in reasons.items() if reason}


def _refusal(name: str, layer: Layer, features: FeatureFetcher | None) -> str | None:
    """Why the mode called `name` cannot feed `layer`, or cannot from `features`."""
    mode = mode_class(name)
    return mode.refusal(layer) or (mode.refusal_of_rows(features) if features is not None else None)


def compute_seconds_of(minibatch: MiniBatch, rates: Rates) -> float:
    """Predicted seconds that this rank computes in `minibatch`. Local."""
    rows = sum(micro_batch.blocks[-1].n_src for micro_batch in minibatch.micro_batches)
    edges = sum(block.edges for micro_batch in minibatch.micro_batches for block in micro_batch.blocks)
    return rows * rates.row + edges * rates.edge + len(minibatch.micro_batches) * rates.step


def bytes_by_mode(minibatch: MiniBatch, ctx: RankContext, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Bytes that each of the modes `names` would bring to each rank for `minibatch`: int64[ranks] by mode. Collective.

    None for all that can serve. Counted from blocks, so that a repeated run finds the same.
    """
    names = serving_modes(ctx.model.layers[0], ctx.features) if names is None else names
    local = [exchange_mode(name, ctx).predicted_bytes(minibatch) for name in names]
    gathered = ctx.communicator.all_gather_rows(np.array(local, np.int64))
    return dict(zip(names, gathered.T, strict=True))


def fewest_bytes(found: Mapping[str, np.ndarray]) -> str:
    """The mode that moves the fewest bytes over all ranks, counted with its surcharge; the first of equals."""
    return min(found, key=lambda name: int(found[name].sum()) * mode_class(name).surcharge)


def least_seconds(
    found: Mapping[str, np.ndarray], compute: float, rates: Rates, learned: bool = False
) -> tuple[str, dict[str, float]]:
    """The mode whose iteration is predicted to be shortest, and the seconds by mode. Local.

    The one that moves the fewest bytes stands unless another is faster by a fifth: noise must not decide. Rows that
    need no weights can be fetched while the iteration before takes its `compute` seconds, but for the half of a fetch
    that is packing and copying. Computed rows travel within the iteration, there and back, and so do `learned` ones.
    """
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
    """The number of the model by which inputs are fetched: it reads own rows of sums if one does, and is the largest.

    Pure.
    """
    sizes = [sum(each.numel() for each in model.parameters()) for model in models]
    return max(range(len(models)), key=lambda number: (models[number].layers[0].sums.needs_own, sizes[number], -number))


def modes_for(models: Sequence[Model], features: FeatureFetcher, config: Config) -> list[str]:
    """The exchange modes that `config` leaves open for `models`, which share what is fetched from `features`.

    Raises ConfigError where it names one that does not serve all.
    """
    names, asked = common_modes([model.layers[0] for model in models], features), config.strategy.remote
    if asked in ("auto", *names):
        return names if asked == "auto" else [asked]
    raise ConfigError(
        f"strategy.remote: {asked} cannot serve these models together: their first layers do not read the same sums, "
        "known before the weights and without dropout of inputs; use raw or auto"
    )
