"""Training on typed graphs: the page's commands from a HeteroData file on, what goes together, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from data_prep.cli import main as prep
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from tests.support.documentation import commands
from tests.support.typed_models import SCHEMA, whole_graph

pytestmark = pytest.mark.compiles

SMALL = "--model rgcn --fanout 3,2 --hidden 4 --epochs 1 --batch-size 8 --threads 1 --device cpu"
FULL = "--batch-size full --fanout all,all"


def write_hetero_data(path):
    """Papers of three subjects, which their features and their authors tell; authors without features."""
    random, papers, authors = np.random.default_rng(0), 240, 90
    subject = random.integers(0, 3, papers)
    writer = np.concatenate([random.choice(np.arange(each, authors, 3), 2) for each in subject])
    pairs = torch.from_numpy(np.stack([writer, np.repeat(np.arange(papers), 2)]))
    shares = torch.from_numpy(random.permutation(papers) % 5)
    features = np.eye(3)[subject] + random.standard_normal((papers, 3))
    stores = {
        "paper": {
            "x": torch.from_numpy(features.astype(np.float32)),
            "y": torch.from_numpy(subject),
            "train_mask": shares < 3,
            "val_mask": shares == 3,
            "test_mask": shares == 4,
        },
        "author": {"num_nodes": authors},
        ("author", "writes", "paper"): {"edge_index": pairs},
    }
    try:
        from torch_geometric.data import HeteroData
    except ImportError:
        torch.save(stores, path)
    else:
        torch.save(HeteroData(stores), path)


def test_the_page_goes_from_a_file_to_a_trained_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_hetero_data(tmp_path / "hetero.pt")
    words = [list(each.words) for each in commands("leapmpi/training/TYPED.md")]
    last = next(at for at, each in enumerate(words) if "train" in each)
    for each in words[: last + 1]:
        program = next(at for at, word in enumerate(each) if word in ("leapmpi", "leapmpi-prep"))
        run = main if each[program] == "leapmpi" else prep
        more = ["--run", "run", "--lr", "0.02", "--verbose"] if "train" in each else []
        assert run([*each[program + 1 :], *more]) == 0, each
    shown = capsys.readouterr().out
    assert "author:writes:paper" in shown
    # A third is chance, and features alone leave a quarter in doubt.
    assert json.loads((tmp_path / "run/summary.json").read_text())["best"]["test"] > 0.8
    log = (tmp_path / "run/log.txt").read_text()
    assert "rows by type: " in log
    assert "paper 2.8 KiB of 3 features" in log
    assert "author 90.0 KiB of 64 learned columns" in log


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folders of a typed graph, and of the same with times of edges and of papers alone."""
    folder, graph = tmp_path_factory.mktemp("typed"), whole_graph()
    random = np.random.default_rng(0)
    are_papers = graph.typed.types_of(np.arange(graph.vertices)) == 0
    times = np.where(are_papers, random.integers(5, 20, graph.vertices), np.iinfo(np.int64).min)
    edge_times = random.integers(0, 20, len(graph.indices))
    timed = replace(graph, edge_data=replace(graph.edge_data, time=edge_times), time=times)
    for name, each in (("plain", graph), ("timed", timed)):
        write_dataset(folder / name, each, np.zeros(graph.vertices, int), 1, method="test", figures={}, seed=0)
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--strategy p3",
            "strategy.name: p3 does not train typed graphs; use leap or pull, or for vertices owner, depcomm",
        ),
        ("--strategy naive", "strategy.name: naive does not train typed graphs"),
        (f"--strategy depcache {FULL}", "strategy.name: depcache does not train typed graphs"),
        (
            f"--strategy depcomm {FULL} --relation-fanout *:cites:*=2",
            "strategy: depcomm draws nothing; give all or 0 in --relation-fanout, or use leap, pull or owner",
        ),
        ("--strategy leap --cache 0.1", "strategy.cache: copies are kept of rows of one width, not of those of types"),
        (
            "--task link --topology sharded",
            "run.topology: edges of a typed graph are trained with the whole topology on each node; use node",
        ),
        ("--sampler ladies", "sampling.sampler: ladies does not draw by relation"),
        ("--sampler temporal", "--sampler temporal needs edge times"),
        ("--norm batch", "model.norm: rgcn normalises each row by itself; give --norm layer"),
        ("--remote sums", "strategy.remote: sums cannot serve this model"),
        ("--vary model.hidden=4,8", "strategy.vary: one model learns the rows"),
        ("--model sage", "model: sage treats all vertices alike, and the graph is typed; use "),
        ("--optimizer sgd", "train.optimizer: learned rows are updated by Adam"),
        ("--relation-fanout nothing:*=2", "sampling.relation_fanout: 'nothing:*' fits no relation of the dataset"),
    ],
)
def test_what_typed_graphs_do_not_take_is_a_sentence(words, sentence, data, tmp_path, capsys):
    run = ["train", str(data / "plain"), *SMALL.split(), *words.split(), "--run", str(tmp_path / "run")]
    assert main(run) != 0
    assert capsys.readouterr().err.startswith(f"leapmpi: error: {sentence}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plain", "--topology sharded"),
        ("plain", f"--strategy depcomm {FULL}"),
        ("plain", f"--strategy hybrid {FULL}"),
        ("plain", f"--strategy hybrid {FULL} --relation-fanout *:cites:*=all"),
        ("plain", f"--strategy leap {FULL}"),
        ("plain", "--strategy owner --topology sharded"),
        ("timed", "--sampler temporal"),
        ("timed", "--sampler temporal --sampler-option bound=root"),
    ],
)
def test_what_typed_graphs_take(name, words, data, tmp_path, capsys):
    run = ["train", str(data / name), *SMALL.split(), *words.split(), "--run", str(tmp_path / "run")]
    assert main(run) == 0
    assert np.isfinite(json.loads((tmp_path / "run/summary.json").read_text())["epochs"][0]["loss"])


def test_types_without_times_are_earlier_than_any_bound(data, tmp_path, capsys):
    # Every relation from a type without times is bounded by the times of its edges alone, and is drawn.
    words = "--sampler temporal --relation-fanout *:cites:*=0"
    assert main(["train", str(data / "timed"), *SMALL.split(), *words.split(), "--run", str(tmp_path / "run")]) == 0
    assert any(each.source != "paper" for each in SCHEMA.relations)
