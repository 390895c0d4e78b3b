"""Strategies as arithmetic: who trains what, in how many time steps. Training itself is tested on ranks."""

from types import SimpleNamespace

import numpy as np
import pytest

from leapmpi.config.sections import ModelConfig, StrategyConfig
from leapmpi.engine.placement import mode_of, placement_of, strategy_named
from leapmpi.errors import ConfigError
from leapmpi.nn.model import build_model

pytestmark = pytest.mark.compiles

OFFSETS = np.array([0, 10, 30, 31, 60])


def strategy(name, **settings):
    """A strategy on four ranks that can schedule, and nothing more."""
    ctx = SimpleNamespace(ranks=4, rank_offsets=OFFSETS, seed=3)
    return placement_of(ctx, StrategyConfig(name=name, **settings))


@pytest.mark.parametrize(
    ("kind", "given", "ranks", "steps"),
    [
        ("pull", "auto", 4, 1), ("pull", "1", 4, 1), ("pull", "N", 1, 1),
        ("leap", "auto", 4, 1), ("leap", "1", 4, 1), ("leap", "N", 4, 4), ("leap", "4", 4, 4), ("leap", "3", 4, 3),
        ("leap", "N", 1, 1),
    ],
)  # fmt: skip
def test_time_steps(kind, given, ranks, steps):
    assert strategy_named(kind).choose_time_steps(StrategyConfig(time_steps=given), ranks) == steps


@pytest.mark.parametrize(
    ("kind", "given"), [("pull", "N"), ("pull", "4"), ("p3", "N"), ("naive", "2"), ("leap", "5"), ("leap", "40")]
)
def test_time_steps_that_cannot_be_are_refused(kind, given):
    with pytest.raises(ConfigError, match=r"time_steps.*not " + given):
        strategy_named(kind).choose_time_steps(StrategyConfig(time_steps=given), 4)


@pytest.mark.parametrize("remote", ["raw", "projected", "partial"])
@pytest.mark.parametrize("kind", ["p3", "naive"])
def test_strategies_with_a_way_of_their_own_take_no_other(kind, remote):
    made = strategy(kind, remote=remote)
    with pytest.raises(ConfigError, match=f"{kind} has its own way .*leave out {remote}"):
        mode_of(made)


@pytest.mark.parametrize("kind", ["p3", "naive"])
def test_strategies_with_a_way_of_their_own_take_not_every_model(kind):
    made = strategy(kind)
    made.ctx.model = build_model(ModelConfig(residual=True), 2, 5, 3, seed=0)
    with pytest.raises(ConfigError, match="cannot train this model: a residual first layer"):
        mode_of(made)
    made.ctx.model = build_model(ModelConfig(), 2, 5, 3, seed=0)
    made.ctx.sampler = SimpleNamespace(weighted=True)
    with pytest.raises(ConfigError, match="sends edges without weights"):
        mode_of(made)


def test_p3_refuses_fewer_columns_than_ranks():
    made = strategy("p3")
    made.ctx.model = build_model(ModelConfig(), 2, 3, 2, seed=0)
    made.ctx.features = SimpleNamespace(shard=SimpleNamespace(width=3))
    with pytest.raises(ConfigError, match="the dataset has 3 for 4 ranks; use leap or pull, or fewer ranks"):
        strategy_named("p3").place_parameters(made.ctx)


def test_strategies_are_found_by_name():
    assert strategy_named("pull").takes_full_batch
    assert strategy_named("auto") is strategy_named("leap")
    with pytest.raises(ConfigError, match="did you mean 'leap'"):
        strategy_named("leep")


@pytest.mark.parametrize("size", [1, 3, 4, 23, 60])
@pytest.mark.parametrize(("kind", "steps"), [("pull", "1"), ("leap", "1"), ("leap", "3"), ("leap", "N")])
def test_every_root_is_trained_once(kind, steps, size):
    batch = np.random.default_rng(size).permutation(60)[:size]
    schedule = strategy(kind, time_steps=steps).schedule(batch, epoch=2, iteration=5)
    assert (schedule.epoch, schedule.iteration, schedule.ranks) == (2, 5, 4)
    assert schedule.time_steps == (4 if steps == "N" else int(steps))
    cells = [schedule.cell(rank, step) for rank in range(4) for step in range(schedule.time_steps)]
    assert sorted(np.concatenate(cells)) == sorted(batch)
    if kind == "leap":
        for rank in range(4):
            roots = schedule.rank_roots(rank)
            assert ((OFFSETS[rank] <= roots) & (roots < OFFSETS[rank + 1])).all()
    else:
        assert np.ptp(schedule.loads()) <= 1
