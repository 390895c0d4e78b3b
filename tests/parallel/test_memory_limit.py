"""What iterations may take, on any number of ranks: kept, or refused in the same words."""

from dataclasses import is_dataclass
from functools import partial

import numpy as np
import pytest
import torch

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.engine.engine import Engine
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import ResourceError
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.stage import Stage
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from tests.support import datasets

DATA = datasets.Variant("single", "metis", 4)


@pytest.fixture(scope="module")
def base(world, folder):
    datasets.build(world.comm, folder, {DATA})
    return folder


def train(world, base, name, **values):
    values = {"data": str(DATA.folder(base)), "train.epochs": 1, "train.batch_size": 64, "model.hidden": 8,
              "run.folder": str(base / name), "run.log_level": "error", "run.device": "cpu", "run.threads": 1,
              "strategy.remote": "raw"} | values  # fmt: skip
    world.comm.barrier()
    return leapmpi.train(Config.from_values(values), world.comm)


@pytest.mark.parametrize(("prefetch", "advice"), [
    ("2", "use --prefetch 0, which prepares no iterations ahead, lower --batch-size or --fanout, or raise the limit"),
    ("0", "lower --batch-size or --fanout, or raise the limit"),
])  # fmt: skip
def test_a_limit_that_nothing_fits_is_refused(prefetch, advice, world, base):
    steps = "1 time step" if world.size == 1 else f"{world.size} time steps"
    sentence = rf"takes about \d+\.\d KiB on a rank even in {steps}, more than --memory-limit 1k; {advice}$"
    with pytest.raises(ResourceError, match=sentence) as caught:
        train(world, base, "refused", **{"strategy.memory_limit": "1k", "strategy.prefetch": prefetch})
    assert caught.value.exit_code == 6
    assert not (base / "refused").exists()


def test_a_limit_that_all_fits_changes_nothing(world, base):
    run = train(world, base, "fits", **{"strategy.memory_limit": "1G"})
    decided = [record["value"] for record in run.metrics() if record.get("about") == "time_steps"]
    assert decided[:1] == ([] if world.size == 1 else [1])


@pytest.mark.parametrize(("strategy", "remote", "model"), [
    ("leap", "partial", "gcn"), ("leap", "partial", "sage"), ("leap", "partial", "film"), ("leap", "projected", "gat"),
    ("leap", "projected", "gatv2"), ("p3", "auto", "gcn"), ("p3", "auto", "gat"),
])  # fmt: skip
def test_what_is_prepared_of_computed_rows_takes_what_is_predicted(strategy, remote, model, world, base):
    values = {"data": str(DATA.folder(base)), "strategy.remote": remote, "model.name": model, "model.hidden": 8,
              "sampling.fanout": "4,3", "strategy.name": strategy}  # fmt: skip
    config = Config.from_values(values)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    loaded = strategy_named(strategy).place(world, loaded)
    engine = Engine(loaded.ctx, config.strategy)
    batch = loaded.dataset.splits.train[:96] if world.rank == 0 else None
    minibatch = engine.plan(batch, 0, 0)
    predicted = engine.mode.held_bytes(minibatch)
    engine.request(minibatch)
    # What all plans share is made once.
    builder = getattr(engine.mode, "builder", None)
    shared = {each.data_ptr() for each in (builder._original_ids, builder._degrees)} if builder else set()
    held = array_bytes(minibatch.feeds, shared)
    all_predicted, all_held = loaded.ctx.communicator.all_gather_rows(np.array([predicted, held])).sum(axis=0)
    assert 0.8 * all_held < all_predicted < 1.5 * all_held, (all_predicted, all_held)
    if remote == "projected":
        # A row is projected once, however many ranks read it.
        (feed,) = minibatch.feeds[0]
        assert len(feed.original.unique()) == len(feed.original)


def array_bytes(value, known):
    """Bytes of the arrays that `value` reaches, but for those at the addresses `known`, to which they are added."""
    if isinstance(value, np.ndarray | torch.Tensor):
        address = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
        counted = address in known
        known.add(address)
        return 0 if counted else value.nbytes
    if isinstance(value, list | tuple):
        return sum(array_bytes(each, known) for each in value)
    if isinstance(value, partial):
        return array_bytes([value.func.__self__, *value.args], known)
    if isinstance(value, RankContext) or not (is_dataclass(value) or isinstance(value, LayerFeed | Stage)):
        return 0
    return array_bytes(list(vars(value).values()), known)
