"""Strategies as arithmetic: who trains what, in how many time steps. Training itself is tested on ranks."""

from types import SimpleNamespace

import numpy as np
import pytest

from leapmpi.config.sections import ModelConfig, StrategyConfig
from leapmpi.engine.placement import placement_class
from leapmpi.errors import ConfigError
from leapmpi.nn.model import build_model
from leapmpi.strategies.leap import Leap
from leapmpi.strategies.naive import Naive
from leapmpi.strategies.p3 import P3
from leapmpi.strategies.pull import Pull

pytestmark = pytest.mark.compiles

OFFSETS = np.array([0, 10, 30, 31, 60])


def strategy(kind, **settings):
    """A strategy on four ranks that can schedule, and nothing more."""
    return kind(SimpleNamespace(ranks=4, rank_offsets=OFFSETS, seed=3), StrategyConfig(**settings))


@pytest.mark.parametrize(
    ("kind", "given", "ranks", "steps"),
    [
        (Pull, "auto", 4, 1), (Pull, "1", 4, 1), (Pull, "N", 1, 1),
        (Leap, "auto", 4, 1), (Leap, "1", 4, 1), (Leap, "N", 4, 4), (Leap, "4", 4, 4), (Leap, "3", 4, 3),
        (Leap, "N", 1, 1),
    ],
)  # fmt: skip
def test_time_steps(kind, given, ranks, steps):
    assert kind.choose_time_steps(StrategyConfig(time_steps=given), ranks) == steps


@pytest.mark.parametrize(
    ("kind", "given"), [(Pull, "N"), (Pull, "4"), (P3, "N"), (Naive, "2"), (Leap, "5"), (Leap, "40")]
)
def test_time_steps_that_cannot_be_are_refused(kind, given):
    with pytest.raises(ConfigError, match=r"time_steps.*not " + given):
        kind.choose_time_steps(StrategyConfig(time_steps=given), 4)


@pytest.mark.parametrize("remote", ["raw", "projected", "partial"])
@pytest.mark.parametrize("kind", [P3, Naive])
def test_strategies_with_a_way_of_their_own_take_no_other(kind, remote):
    made = strategy(kind, name=kind.__name__.lower(), remote=remote)
    with pytest.raises(ConfigError, match=f"{kind.__name__.lower()} has its own way .*leave out {remote}"):
        made.exchange_mode()


@pytest.mark.parametrize("kind", [P3, Naive])
def test_strategies_with_a_way_of_their_own_take_not_every_model(kind):
    made = strategy(kind, name=kind.__name__.lower())
    made.ctx.model = build_model(ModelConfig(residual=True), 2, 5, 3, seed=0)
    with pytest.raises(ConfigError, match="cannot train this model: a residual first layer"):
        made.exchange_mode()
    made.ctx.model = build_model(ModelConfig(), 2, 5, 3, seed=0)
    made.ctx.sampler = SimpleNamespace(weighted=True)
    with pytest.raises(ConfigError, match="sends edges without weights"):
        made.exchange_mode()


def test_p3_refuses_fewer_columns_than_ranks():
    made = strategy(P3, name="p3")
    made.ctx.model = build_model(ModelConfig(), 2, 3, 2, seed=0)
    made.ctx.features = SimpleNamespace(shard=SimpleNamespace(width=3))
    with pytest.raises(ConfigError, match="the dataset has 3 for 4 ranks; use leap or pull, or fewer ranks"):
        P3.place_parameters(made.ctx)


def test_strategies_are_found_by_name():
    assert placement_class("pull") is Pull
    assert placement_class("p3") is P3
    assert placement_class("naive") is Naive
    assert placement_class("leap") is Leap
    with pytest.raises(ConfigError, match="did you mean 'leap'"):
        placement_class("leep")


@pytest.mark.parametrize("size", [1, 3, 4, 23, 60])
@pytest.mark.parametrize(("kind", "steps"), [(Pull, "1"), (Leap, "1"), (Leap, "3"), (Leap, "N")])
def test_every_root_is_trained_once(kind, steps, size):
    batch = np.random.default_rng(size).permutation(60)[:size]
    schedule = strategy(kind, time_steps=steps).schedule(batch, epoch=2, iteration=5)
    assert (schedule.epoch, schedule.iteration, schedule.ranks) == (2, 5, 4)
    assert schedule.time_steps == (4 if steps == "N" else int(steps))
    cells = [schedule.cell(rank, step) for rank in range(4) for step in range(schedule.time_steps)]
    assert sorted(np.concatenate(cells)) == sorted(batch)
    if kind is Leap:
        for rank in range(4):
            roots = schedule.rank_roots(rank)
            assert ((OFFSETS[rank] <= roots) & (roots < OFFSETS[rank + 1])).all()
    else:
        assert np.ptp(schedule.loads()) <= 1
