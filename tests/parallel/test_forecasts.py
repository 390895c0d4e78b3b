"""Forecasts agree with what real runs count."""

import pytest

from data_prep.cli import main as prep
from leapmpi import Config, train
from leapmpi.tools.forecast import compare

# By number of ranks: settings, and a figure that is of this kind of run.
CASES = {
    "partial, two steps": (3, {"strategy.remote": "partial", "strategy.time_steps": "2"}, "remote"),
    "p3": (2, {"strategy.name": "p3"}, "labels"),
    "naive": (2, {"strategy.name": "naive"}, "labels"),
    "models that differ": (
        2, {"strategy.vary": ("model.hidden=8,16",)}, "remote",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def cora(real_graph, world, folder):
    source = real_graph("gnnbench-cora")

    def prepare():
        splits = ["--splits", "random:0.6,0.2,0.2", "--seed", "1"]
        assert prep(["import", str(source), str(folder / "g.h5"), *splits]) == 0
        assert prep(["partition", str(folder / "g.h5"), str(folder / "data"), "--parts", "4"]) == 0

    world.on_root(prepare)
    return folder / "data"


@pytest.mark.parametrize("name", CASES)
def test_rows_and_bytes_of_a_real_run_are_predicted_within_five_percent(name, world, folder, request):
    ranks, settings, figure_of_its_own = CASES[name]
    if world.size != ranks:
        pytest.skip("another number of ranks takes it")
    data, run = request.getfixturevalue("cora"), folder / name
    values = {"data": str(data), "run.folder": str(run), "run.threads": 1, "run.log_level": "error", **settings}
    values |= {"train.batch_size": 300, "train.epochs": 8, "model.hidden": 16, "evaluate.every": 0}
    train(Config.from_values(values), world.comm)
    found = world.on_root(lambda: compare(Config.from_values({"data": str(data)}), str(run)))
    if found:
        figures = found["rows"] | found["bytes"]
        assert {"local", figure_of_its_own, "ids", "gradients"} <= figures.keys()
        for figure_name, figure in figures.items():
            assert figure["ratio"] == pytest.approx(1, abs=0.05), (figure_name, figure)


def test_epochs_without_copies_of_remote_lists_are_not_compared(world, folder, request):
    if world.size != 2:
        pytest.skip("two ranks take it")
    data, run = request.getfixturevalue("cora"), folder / "copies"
    values = {"data": str(data), "run.folder": str(run), "run.threads": 1, "run.log_level": "error"}
    values |= {"train.batch_size": 300, "model.hidden": 16, "evaluate.every": 0, "sampling.fanout": "5,5"}
    values |= {"run.topology": "sharded", "run.topology_memory": "1G"}
    # Each start observes three epochs before it copies lists.
    for epochs in (4, 7):
        train(Config.from_values(values | {"train.epochs": epochs}), world.comm)
    found = world.on_root(lambda: compare(Config.from_values({"data": str(data)}), str(run)))
    if found:
        assert found["bytes"]["topology"]["ratio"] == pytest.approx(1, abs=0.05)
