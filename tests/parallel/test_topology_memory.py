"""Lists of in-neighbours in a file: the same bits, whoever holds them."""

import tempfile

import pytest

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.system.unnamed_files import IN_MEMORY, file_system
from tests.support import datasets
from tests.support.equality import here

PLAIN, WEIGHTED = (datasets.Variant(labels, "metis", 4) for labels in ("single", "single, edges with data"))


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains `data` for an epoch in a folder of the given name; returns the run."""
    datasets.build(world.comm, folder, {PLAIN, WEIGHTED})

    def run(name, data, **changes):
        values = {"data": str(data.folder(folder)), "train.epochs": 1, "train.batch_size": 24, "model.hidden": 8,
                  "sampling.fanout": "4,3", "run.folder": str(folder / name), "strategy.name": "leap",
                  "run.threads": 1, "run.log_level": "info", "run.device": "cpu"}  # fmt: skip
        world.comm.barrier()
        return leapmpi.train(Config.from_values(values | changes), world.comm)

    return run


CASES = [
    (PLAIN, {"run.topology": "node"}),
    (PLAIN, {"run.topology": "sharded", "strategy.remote": "raw", "evaluate.fanout": "all"}),
    (WEIGHTED, {"run.topology": "node", "sampling.sampler": "weighted", "strategy.remote": "projected"}),
    (WEIGHTED, {"run.topology": "sharded", "sampling.sampler": "labor-0", "model.name": "gcn"}),
]


@pytest.mark.parametrize(("data", "settings"), here(CASES), ids=str)
def test_lists_in_a_file_train_to_the_same_bits(data, settings, train, world):
    if file_system(tempfile.gettempdir()) in IN_MEMORY:
        pytest.skip("temporary files are in memory here")
    name = "-".join(settings.values())
    whole = train(f"whole-{name}", data, **settings)
    apart = train(f"apart-{name}", data, **settings, **{"run.topology_memory": "8K"})
    world.comm.barrier()
    assert apart.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert apart.summary["epochs"][-1]["accuracy"] == whole.summary["epochs"][-1]["accuracy"]
    assert "lists in files" in (apart.path / "log.txt").read_text()
    assert "lists in files" not in (whole.path / "log.txt").read_text()


@pytest.mark.parametrize("strategy", here(["pull", "leap", "owner"]))
def test_copies_of_remote_lists_train_to_the_same_bits(strategy, train, world):
    settings = {"strategy.name": strategy, "run.topology": "sharded", "train.batch_size": 4, "train.epochs": 2}
    whole = train(f"requested-{strategy}", PLAIN, **settings)
    copied = train(f"copied-{strategy}", PLAIN, **settings, **{"run.topology_memory": "1G"})
    world.comm.barrier()
    assert copied.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert "lists of other ranks are copied" in (copied.path / "log.txt").read_text()
    requested, spared = (run.summary["epochs"][-1]["bytes"]["topology"] for run in (whole, copied))
    assert spared < requested or world.size == 1
