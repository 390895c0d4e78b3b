"""Training on a stand-in for a GPU that refuses what a GPU refuses: samplers, models, strategies, remote forms."""

from dataclasses import replace

import numpy as np
import pytest

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from tests.support import datasets
from tests.support.kinds import KINDS
from tests.support.stand_in_gpu import present
from tests.support.typed_models import whole_graph

pytestmark = pytest.mark.compiles

MODELS = ("sage", "gcn", "gat", "gatv2", "gin", "film", "deepgcn")
OF_MODELS = {
    "gcn": {"model.norm": "batch"},
    "gin": {"model.dropout": 0.5, "model.input_dropout": 0.3},
    "film": {"train.dtype": "bfloat16"},
}
"""What some of the models are trained with."""
FULL = {"train.batch_size": "full", "sampling.fanout": "all,all"}
SAMPLERS = [kind for kind in KINDS if not kind.startswith("temporal")]
"""Whose edges need no times."""
TYPED = {"model.missing_features": "learned:6", "sampling.fanout": "3,2", "train.batch_size": 6}
CASES = {
    **{
        f"{kind}; {model}": {
            "sampling.sampler": kind.partition(",")[0],
            "sampling.options": list(KINDS[kind]),
            "model.name": model,
            **OF_MODELS.get(model, {}),
        }
        for kind, model in zip(SAMPLERS, MODELS * 3, strict=False)
    },
    "sage max": {"model.options.aggregate": "max"},
    **{name: {"strategy.name": name} for name in ("pull", "naive", "p3", "owner")},
    **{name: FULL | {"strategy.name": name} for name in ("depcomm", "depcache", "hybrid")},
    **{form: {"strategy.remote": form, "strategy.time_steps": "N"} for form in ("raw", "sums", "projected", "partial")},
    "mixed, prefetched, with a cache": {"strategy.remote": "mixed", "strategy.prefetch": 2, "strategy.cache": 0.001},
    **{f"typed; {model}": TYPED | {"model.name": model} for model in ("rgcn", "rsage", "rgat", "hgt", "simple-hgn")},
    **{f"typed; {form}": TYPED | {"model.name": "rgcn", "strategy.remote": form} for form in ("projected", "mixed")},
    **{f"typed; {name}": TYPED | {"model.name": "rsage", "strategy.name": name} for name in ("pull", "owner")},
    "typed; hybrid": TYPED | {"model.name": "rgcn", "strategy.name": "hybrid"} | FULL,
    "typed; beta": TYPED | {"model.name": "simple-hgn", "model.options.beta": 0.5, "strategy.name": "depcomm"} | FULL,
    "typed; labor-0": TYPED | {"model.name": "rgcn", "sampling.sampler": "labor-0"},
    **{
        f"timed; {option}": {"sampling.sampler": "temporal", "sampling.options": [option]}
        for option in ("draw=uniform", "draw=latest", "bound=root")
    },
}


FEW = (
    *("node-wise; sage", "labor-0; gat", "owner", "hybrid", "mixed, prefetched, with a cache"),
    *("typed; rgat", "timed; bound=root"),
)
"""Cases that every change must pass; tests/soak goes through all."""


def digests(data, folder, name):
    """Return the digests of the parameters that the case trains on the CPU's stand-in and on the present one.

    data: the dataset of cases whose graph has neither types nor times.
    """
    data = written(name, folder / "data") or data

    def run(device):
        changes = {"train.epochs": 1, "evaluate.every": 0} | CASES[name]
        return trained(data, folder / device, device, changes)["parameters_digest"]

    expected = run("stand-in")
    with present():
        return run("cuda"), expected


def trained(data, folder, device, changes):
    """Return the summary of a training on `device`."""
    values = {"data": str(data), "train.batch_size": 40, "model.hidden": 8, "sampling.fanout": "4,3",
              "strategy.name": "leap", "run.threads": 1, "run.folder": str(folder), "run.log_level": "error",
              "run.device": device}  # fmt: skip
    return leapmpi.train(Config.from_values(values | changes)).summary


def written(name, folder):
    """Write a dataset with types, or with times of edges, for a case whose name begins so; else return None."""
    if name.startswith("typed"):
        graph = whole_graph(1, edges=200)
    elif name.startswith("timed"):
        graph = datasets.make_graph("single, edges with data")
        times = np.random.default_rng(6).integers(0, 50, graph.edges)
        graph = replace(graph, edge_data=replace(graph.edge_data, time=times), attributes={"directed": True})
    else:
        return None
    write_dataset(folder, graph, np.arange(graph.vertices) % 2, 2, method="test", figures={}, seed=0)
    return folder


@pytest.mark.parametrize("name", FEW)
def test_a_gpu_takes_the_steps_of_the_cpu_that_stands_in(name, small_data, tmp_path):
    found, expected = digests(small_data, tmp_path, name)
    assert found == expected
