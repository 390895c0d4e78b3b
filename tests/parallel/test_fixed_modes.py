"""naive and p3 as they score: the outputs of a rank's own roots are those of the whole model on rows fetched here."""

import numpy as np
import pytest
import torch

from leapmpi.config.schema import Config
from leapmpi.engine.engine import Engine
from leapmpi.engine.placement import strategy_named
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.nn.tensors import to_tensors
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import VAL, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from tests.support import datasets

DATA = datasets.Variant("single", "uneven", 4)


@pytest.fixture(scope="module")
def base(world, folder):
    datasets.build(world.comm, folder, {DATA})
    return folder


@pytest.mark.parametrize(("strategy", "model"), [("naive", "sage"), ("naive", "gat"), ("p3", "gcn"), ("p3", "gat")])
def test_outputs_are_those_of_the_whole_model(strategy, model, world, base):
    values = {
        "data": str(DATA.folder(base)), "strategy.name": strategy, "model.name": model, "model.hidden": 8,
        "model.input_dropout": 0.5, "sampling.fanout": "3,2", "train.dtype": "float64",
    }  # fmt: skip
    config = Config.from_values(values)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    loaded = strategy_named(strategy).place(world, loaded)
    ctx = loaded.ctx
    mode = Engine(ctx, config.strategy).mode
    # Ranks score different numbers of roots, the last of them none.
    roots = loaded.dataset.splits.val[world.rank :: world.size][: 5 * (world.size - 1 - world.rank)]
    key = DrawKey(VAL, 1, 0, 0)
    blocks = ctx.sampler.sample(key, roots)
    work = MiniBatch(None, key, [MicroBatch(roots, blocks, None)], drops=False)
    mode.request(work)
    got = mode.logits(work, 0)
    rows = ctx.features.fetch(blocks[-1].src)
    with torch.no_grad():
        wanted = ctx.parameters.whole_model()([to_tensors(block) for block in blocks], rows, None)
    assert got.shape == (len(roots), loaded.dataset.classes)
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
