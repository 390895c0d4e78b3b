"""What spares the wire of raw rows does what is told of it: predicted hits, and settings that do not act."""

import pytest
from mpi4py import MPI

import leapmpi
from leapmpi.config.schema import Config
from tests.support import datasets
from tests.support.equality import here

EVEN = datasets.Variant("single", "metis", 4)
LINK = {
    "train.task": "link", "link.negatives_per_edge": 1, "sampling.fanout": "2,2",
    "sampling.sampler": "labor-0",
}  # fmt: skip


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains a dataset in a folder of the given name, raw rows crossing ranks; returns the run."""
    datasets.build(world.comm, folder, {EVEN})

    def run(name, data, **changes):
        values = {"data": str(data.folder(folder)), "train.epochs": 2, "train.batch_size": 24, "model.hidden": 8,
                  "sampling.fanout": "4,3", "strategy.remote": "raw", "run.folder": str(folder / name),
                  "run.threads": 1, "run.log_level": "error", "run.device": "cpu"}  # fmt: skip
        world.comm.barrier()
        return leapmpi.train(Config.from_values(values | changes), world.comm)

    return run


def banner(run):
    return next(record for record in run.metrics() if record["event"] == "banner")


SAINT = {"sampling.sampler": "graph-saint", "sampling.options": ("size=60",)}
CLUSTERS = {"sampling.sampler": "cluster-gcn", "sampling.options": ("clusters=24", "per-batch=2")}


BY_RANKS = {2: [CLUSTERS | {"strategy.name": "pull"}, LINK | {"strategy.name": "leap", "run.topology": "sharded"}],
            3: [{"run.topology": "sharded"}], 4: [SAINT, LINK | {"strategy.name": "pull"}]}  # fmt: skip


@pytest.mark.parametrize("settings", BY_RANKS.get(MPI.COMM_WORLD.size, []), ids=str)
def test_the_cache_spares_what_was_predicted(settings, train):
    many = {"train.epochs": 1 if "train.task" in settings else 12, "evaluate.every": 0, "strategy.cache": 0.15}
    epochs = train(f"cache-predicted-{len(settings)}", EVEN, **many | settings).summary["epochs"]
    rows = {place: sum(epoch["rows"][place] for epoch in epochs) for place in ("cached", "remote")}
    assert rows["remote"] > 0
    measured = rows["cached"] / (rows["cached"] + rows["remote"])
    assert epochs[0]["cache"]["predicted_hit_rate"] == pytest.approx(measured, abs=0.04)


@pytest.mark.parametrize(("remote", "topology"), here([("raw", "node"), ("partial", "node"), ("raw", "sharded")]))
def test_rows_in_files_train_to_the_same_bits(remote, topology, train, world):
    settings = {"strategy.remote": remote, "strategy.name": "leap", "train.epochs": 1}
    whole = train(f"whole-{remote}", EVEN, **settings)
    in_files = {"strategy.feature_memory": "6K", "run.topology": topology}
    apart = train(f"apart-{remote}", EVEN, **settings, **in_files)
    world.comm.barrier()
    assert apart.summary["parameters_digest"] == whole.summary["parameters_digest"]
    read, (told,) = apart.summary["epochs"][0]["feature_memory"], [banner(apart)["economy"]["feature_memory"]]
    assert min(read["resident"], read["mapped"]) > 0
    assert max(told["resident_bytes"]) <= 6 << 10
    assert min(told["mapped_bytes"]) > 0


def log_of(run):
    return (run.path / "log.txt").read_text()


def test_one_rank_says_that_nothing_is_spared(train, world):
    run = train("ignored", EVEN, **{"strategy.cache": 0.1, "run.log_level": "info"})
    # Rank 0 writes the last lines when the other ranks are done.
    world.comm.barrier()
    ignored = "--cache is ignored: one rank reads no rows of others"
    assert (ignored in log_of(run)) == (world.size == 1)
