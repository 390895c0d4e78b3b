"""Commands on several ranks, all of them in this job: to start one for each takes seconds of every rank."""

import json
import re

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from data_prep.cli import main as prepare
from leapmpi import Config, train
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.job import exact_scores
from leapmpi.runs.run import load_run
from tests.support.graphs import random_graph
from tests.support.small_run import train_small, write_small_data
from tests.support.whole_graph import whole_outputs

# Several strategies, or a real graph, in one case; as a job of its own each had as long.
pytestmark = pytest.mark.timeout(100)

on_two_ranks = pytest.mark.skipif(MPI.COMM_WORLD.size != 2, reason="two ranks tell what others would")
on_three_ranks = pytest.mark.skipif(MPI.COMM_WORLD.size != 3, reason="three ranks tell what others would")
STRATEGIES = "pull,leap,leap:time-steps=N,leap:remote=partial,naive,p3"


@pytest.fixture(scope="module")
def data(world, folder):
    """The dataset `small_data`, which all ranks see."""
    world.on_root(lambda: write_small_data(folder / "data"))
    return folder / "data"


@pytest.fixture(scope="module")
def finished_run(world, folder, data):
    """Three epochs on it, trained by one rank."""
    world.on_root(lambda: train_small(data, folder / "finished", MPI.COMM_SELF))
    return load_run(folder / "finished")


@pytest.fixture
def said(world, capsys):
    """A function that runs a command on all ranks; returns what it printed, which rank 0 alone does."""

    def run(*words: object, codes: tuple[int, ...] = (0,)) -> str:
        code = main([str(word) for word in words])
        output, errors = capsys.readouterr()
        assert (code in codes, errors) == (True, ""), code
        printed = world.comm.allgather(output)
        assert not any(printed[1:])
        return printed[0]

    return run


@on_two_ranks
def test_all_strategies_learn_the_same(data, said):
    settings = ["--epochs", 3, "--dtype", "float64", "--hidden", 8, "--batch-size", 32, "--fanout", "5,5"]
    rows = json.loads(said("bench", data, "--strategies", STRATEGIES, "--json", *settings))
    assert [row["strategy"] for row in rows] == STRATEGIES.split(",")
    assert [row["time_steps"] for row in rows] == [1, 1, 2, 1, 1, 1]
    assert [row["remote"] for row in rows] == ["raw", "raw", "raw", "partial", "ring", "columns"]
    for row in rows:
        assert row["loss"] == pytest.approx(rows[0]["loss"], rel=1e-9)
        assert row["accuracy"] == rows[0]["accuracy"]
        assert len(row["seconds"]) == 3
    assert rows[3]["bytes"]["features"] == 0 < rows[3]["bytes"]["activations"]
    assert rows[2]["bytes"]["parameters"] > 0 == rows[1]["bytes"]["parameters"]
    assert rows[1]["rows"] == rows[2]["rows"]
    for row in rows[4:]:
        assert row["bytes"]["features"] == row["rows"]["remote"] == 0 < row["bytes"]["activations"]
    assert rows[4]["bytes"]["parameters"] > 0 == rows[5]["bytes"]["parameters"]
    assert rows[5]["bytes"]["gradients"] < rows[0]["bytes"]["gradients"] < rows[4]["bytes"]["gradients"]


@on_two_ranks
def test_caches_spare_rows_and_say_how_many(data, said):
    strategies = "leap,leap:cache=0.3,pull:cache=0.3,leap:cache=0.3:remote=partial"
    settings = ["--epochs", 2, "--dtype", "float64", "--hidden", 8, "--batch-size", 32, "--fanout", "5,5"]
    plain, cached, pulled, partial = json.loads(said("bench", data, "--strategies", strategies, "--json", *settings))
    for row in (cached, pulled, partial):
        assert row["loss"] == pytest.approx(plain["loss"], rel=1e-9)
    assert cached["rows"]["cached"] + cached["rows"]["remote"] == plain["rows"]["remote"]
    for row in (cached, pulled):
        assert row["cache"]["hit_rate"] == row["rows"]["cached"] / (row["rows"]["cached"] + row["rows"]["remote"])
        assert row["cache"]["predicted_hit_rate"] == pytest.approx(row["cache"]["hit_rate"], abs=0.1)
    # No raw row travels, so nothing is cached.
    assert "cache" not in partial
    assert partial["rows"]["cached"] == 0
    assert partial["ignored"] == ["--cache is ignored: no raw rows cross ranks (first layer: partial)"]
    assert cached["ignored"] == plain["ignored"] == []


@on_two_ranks
def test_models_that_differ_are_set_against_separate_runs(data, said):
    # No model has the widths of the config itself, which fit no number of heads.
    settings = ["--model", "gat", "--model-option", "heads=2", "--hidden", 3]
    settings += ["--vary", "model.hidden=4,8,6", "--epochs", 2, "--batch-size", 32]
    settings += ["--fanout", "5,5", "--dtype", "float64", "--remote", "raw"]
    ensemble, *separate, summed = json.loads(said("bench", data, "--strategies", "leap", "--json", *settings))
    assert ensemble["strategy"] == "leap, 3 models"
    assert [row["strategy"] for row in separate] == ["model.hidden=4", "model.hidden=8", "model.hidden=6"]
    assert ensemble["loss"] == pytest.approx(summed["loss"], rel=1e-9)
    assert ensemble["rows"] == separate[0]["rows"]
    assert summed["bytes"]["features"] == 3 * ensemble["bytes"]["features"] > 0
    assert summed["epoch_seconds"] == pytest.approx(sum(row["epoch_seconds"] for row in separate))


@on_two_ranks
def test_a_job_on_a_real_graph_reads_the_remote_rows_that_its_partition_predicted(
    world, folder, real_graph, said, capsys
):
    graph, cut = folder / "graph.h5", folder / "tolokers"
    source = real_graph("heterophilous-tolokers")
    training = ["--fanout", "5,5", "--batch-size", "512"]

    def prepared():
        assert prepare(["import", str(source), str(graph)]) == 0
        assert prepare(["partition", str(graph), str(cut), "--method", "reldg", "--parts", "2", *training]) == 0

    world.on_root(prepared)
    capsys.readouterr()
    strategies = ["--strategies", "leap:remote=raw:merge=paper,pull:remote=raw"]
    rows = json.loads(said("bench", cut, "--json", "--epochs", 1, "--hidden", 4, *training, *strategies))
    predicted = open_dataset(cut).attributes
    for strategy, row in zip(("leap", "pull"), rows, strict=True):
        assert row["rows"]["remote"] == pytest.approx(predicted[f"{strategy}_remote_rows_epoch"], rel=0.05)


@on_two_ranks
def test_two_ranks_tell_one_story_and_record_what_moved(data, folder, said):
    settings = ["--epochs", 2, "--batch-size", 16, "--time-steps", "N", "--verbose", "--run", folder / "story"]
    told = said("train", data, *settings)
    assert [line.split()[1] for line in told.splitlines() if line.startswith("epoch ")] == ["1/2"] * 2 + ["2/2"] * 2
    for sentence in ("ranks 2 on 1 node", "libmpi", "plan: strategy leap, ", "2 time steps", "models with gradients"):
        assert sentence in told
    summary = json.loads((folder / "story" / "summary.json").read_text())
    assert summary["ranks"] == 2
    assert len(summary["peak_memory_bytes"]) == 2
    for epoch in summary["epochs"]:
        assert epoch["time_steps"] == 2
        assert all(epoch["rows"][place] > 0 for place in ("local", "remote"))
        for kind in ("ids", "features", "parameters", "gradients", "schedule"):
            assert epoch["bytes"][kind] > 0


def test_seeds_end_with_mean_and_deviation_of_their_scores(data, folder, said):
    settings = ["--epochs", 1, "--batch-size", 32, "--hidden", 8, "--fanout", "2,2", "--seeds", "0,1"]
    last = said("train", data, *settings, "--run", folder / "seeds").splitlines()[-1]
    assert re.fullmatch(
        r"mean and deviation of 2 models  accuracy val 0\.\d{4} ± 0\.\d{4}  test 0\.\d{4} ± 0\.\d{4}", last
    )


@on_two_ranks
@pytest.mark.parametrize("strategy", ["leap", "p3"])
def test_the_best_weights_are_scored_exactly_where_that_is_cheap(data, folder, said, monkeypatch, strategy):
    settings = ["--epochs", 3, "--batch-size", 32, "--hidden", 8, "--fanout", "2,2", "--strategy", strategy]
    told = said("train", data, *settings, "--run", folder / f"{strategy}-dear")
    command = f"leapmpi evaluate {data} {folder / f'{strategy}-dear'} --eval-fanout all"
    assert told.splitlines()[-2:] == ["exact scores of the best weights, by:", f"  {command}"]
    monkeypatch.setattr(exact_scores, "_SHARE", 1e9)
    told = said("train", data, *settings, "--run", folder / f"{strategy}-cheap")
    summary = load_run(folder / f"{strategy}-cheap").summary
    (found,) = map(
        json.loads, said("evaluate", data, folder / f"{strategy}-cheap", "--eval-fanout", "all", "--json").splitlines()
    )
    assert {split: found[split] for split in ("val", "test")} == summary["exact"]
    assert f"val {found['val']:.4f} test {found['test']:.4f}" in told.splitlines()[-1]
    assert summary["parameters_digest"] == load_run(folder / f"{strategy}-dear").summary["parameters_digest"]


@on_two_ranks
def test_doctor_tells_of_every_rank(said):
    # 1 where the machine has a single core.
    facts = json.loads(said("doctor", "--json", codes=(0, 1)))
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1]
    assert re.match(r"2 ranks by \w+", facts["mpi"]["launcher"])
    assert facts["mpi"]["library"]
    assert facts["mpi"]["cuda_aware"] in (True, False)
    assert "MPIX_Query_cuda_support" in facts["mpi"]["cuda_aware_evidence"]
    assert {"python", "mpi4py", "torch", "numpy", "h5py", "hdf5"} <= set(facts["versions"])


@on_three_ranks
def test_a_run_is_scored_alike_on_more_ranks_and_another_partition(world, folder, finished_run, said):
    graph, other = random_graph(n=240, degree=6), folder / "other"
    assignment = np.arange(240, dtype=np.int32) % 3
    world.on_root(lambda: write_dataset(other, graph, assignment, 3, method="test", figures={}, seed=0))
    (found,) = map(json.loads, said("evaluate", other, finished_run.path, "--json").splitlines())
    assert found == {"schema": 2, "weights": "best", "metric": "accuracy", **finished_run.summary["best"]}


@on_three_ranks
def test_all_ranks_write_one_file(folder, data, finished_run, said):
    out, graph = folder / "out" / "p.h5", random_graph(n=240, degree=6)
    out.parent.mkdir(exist_ok=True)
    request = ["--what", "classes", "--memory-limit", "60k", "--log-level", "info"]
    told = said("predict", data, finished_run.path, "--out", out, *request)
    assert "layer 1 of 2: 240 vertices, " in told
    assert "sent between ranks: ids " in told
    assert all(len(line) <= 80 for line in told.splitlines() if str(out) not in line)
    ids = graph.original_id
    classes = whole_outputs(finished_run.config, graph, finished_run.weights()).argmax(axis=1)
    with h5py.File(out) as file:
        assert np.array_equal(file["predictions"][:][ids], classes)
        assert np.array_equal(file["vertices"][:][ids], ids)
        assert file.attrs["what"] == "classes"
        assert (np.delete(file["vertices"][:], ids) == -1).all()
    assert [path.name for path in out.parent.iterdir()] == ["p.h5"]


@on_three_ranks
@pytest.mark.parametrize("suffix", ["h5", "npy", "csv"])
def test_ranks_without_a_requested_row_write_the_file_too(suffix, world, folder, data, finished_run, said):
    out, some = folder / f"one.{suffix}", folder / "one.txt"
    vertex = random_graph(n=240, degree=6).original_id[3]
    world.on_root(lambda: some.write_text(f"{vertex}\n"))
    said("predict", data, finished_run.path, "--out", out, "--vertices", some, "--log-level", "error")
    if suffix == "npy":
        assert np.load(out).shape == (1, 3)
    elif suffix == "csv":
        assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["vertex", str(vertex)]
    else:
        with h5py.File(out) as file:
            assert file["vertices"][:].tolist() == [vertex]


@on_three_ranks
def test_pairs_and_partners_are_scored_on_all_ranks(world, folder, data, said):
    settings = {"data": str(data), "model.hidden": 8, "train.task": "link", "train.epochs": 1, "sampling.fanout": "4,3"}
    settings |= {"run.folder": str(folder / "links"), "run.log_level": "error", "evaluate.every": 0}
    train(Config.from_values(settings), world.comm)
    graph = random_graph(n=240, degree=6)
    ids = graph.original_id
    pairs, some = ids[[(0, 239), (17, 17), (200, 3), (3, 200)]], ids[[7, 230]].tolist()
    world.on_root(
        lambda: (np.save(folder / "pairs.npy", pairs), (folder / "some.txt").write_text("{}\n{}\n".format(*some)))
    )
    out = {name: folder / f"links-{name}.h5" for name in ("all", "pairs", "top")}
    for name, request in (("all", ()), ("pairs", ("--pairs", folder / "pairs.npy")), ("top", ("--top", 3))):
        request = (*request, "--vertices", folder / "some.txt") if name == "top" else request
        said("predict", data, folder / "links", "--out", out[name], *request, "--log-level", "error")
    with h5py.File(out["all"]) as file:
        embeddings = file["predictions"][:]
    with h5py.File(out["pairs"]) as file:
        expected = (embeddings[pairs[:, 0]] * embeddings[pairs[:, 1]]).sum(axis=1)
        np.testing.assert_allclose(file["scores"][:], expected, rtol=1e-4, atol=1e-6)
    with h5py.File(out["top"]) as file:
        found = file["pairs"][:], file["scores"][:]
    assert found[0][:, 0].tolist() == [vertex for vertex in some for _ in range(3)]
    np.testing.assert_allclose(found[1], (embeddings[found[0]].prod(axis=1)).sum(axis=1), rtol=1e-4, atol=1e-6)
    for row, vertex in zip((7, 230), some, strict=True):
        scores = embeddings @ embeddings[vertex]
        known = ids[graph.indices[graph.indptr[row] : graph.indptr[row + 1]]]
        # Vertices without a row, the vertex itself and its in-neighbours are not partners.
        scores[np.setdiff1d(np.arange(len(scores)), ids)] = -np.inf
        scores[[vertex, *known]] = -np.inf
        best = np.sort(found[1][found[0][:, 0] == vertex])[::-1]
        np.testing.assert_allclose(best, np.sort(scores)[::-1][:3], rtol=1e-4, atol=1e-6)
