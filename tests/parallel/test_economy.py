"""What spares the wire of raw rows does what is told of it: predicted hits."""

import pytest

import leapmpi
from leapmpi.config import Config
from tests.parallel import datasets

LOPSIDED = datasets.Wanted("single", "lopsided", 4)
EVEN = datasets.Wanted("single", "metis", 4)


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains a dataset in a folder of the given name, raw rows crossing ranks; returns the run."""
    datasets.build(world.comm, folder, {LOPSIDED, EVEN})

    def run(name, data, **changes):
        values = {"data": str(data.folder(folder)), "train.epochs": 4, "train.batch_size": 24, "model.hidden": 8,
                  "sampling.fanout": "4,3", "strategy.remote": "raw", "run.folder": str(folder / name),
                  "run.threads": 1, "run.log_level": "error", "run.device": "cpu"}  # fmt: skip
        world.comm.barrier()
        return leapmpi.train(Config.from_values(values | changes), world.comm)

    return run


SAINT = {"sampling.sampler": "graph-saint", "sampling.options": ("size=60",)}
CLUSTERS = {"sampling.sampler": "cluster-gcn", "sampling.options": ("clusters=24", "per-batch=2")}


@pytest.mark.parametrize(("data", "settings"), [
    (LOPSIDED, {"strategy.balance": "on"}),
    (EVEN, SAINT),
    (EVEN, CLUSTERS | {"strategy.name": "pull"}),
], ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value.partition)  # fmt: skip
def test_the_cache_spares_what_was_predicted(data, settings, train, world):
    if world.size == 1:
        pytest.skip("one rank caches nothing")
    name = f"cache-{data.partition}-{'-'.join(map(str, settings.values()))}"
    epochs = train(name, data, **{"strategy.cache": 0.15} | settings).summary["epochs"]
    rows = {place: sum(epoch["rows"][place] for epoch in epochs) for place in ("cached", "remote")}
    assert rows["remote"] > 0
    measured = rows["cached"] / (rows["cached"] + rows["remote"])
    assert epochs[0]["cache"]["predicted_hit_rate"] == pytest.approx(measured, abs=0.04)
