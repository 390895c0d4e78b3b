"""The runs that `golden.py` records: by name PART/WHAT-RANKS, their dataset and settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.made_graphs import METIS

DATA = Path(os.environ.get("LEAPMPI_TEST_DATA", Path(__file__).parents[3] / "shared/data"))
"""Folder of real graphs; without it the part `real` is left out."""

Settings = dict[str, Any]
Cases = dict[str, tuple[str, Settings]]
"""By name: a dataset, and settings."""
REMOTE = ("raw", "projected", "partial", "sums", "auto")

# -- datasets -------------------------------------------------------------------------------------------------------

REAL = {
    # Sparse rows, classes.
    "cora": (("planetoid-cora",), METIS),
    # Dense rows, classes.
    "photo": (
        ("graphdata-amazon_photo", "--feature-storage", "dense", "--splits", "random:0.6,0.2,0.2"),
        METIS,
    ),
    "tolokers": (("heterophilous-tolokers",), METIS),
    # Edges held back.
    "cora-links": (("planetoid-cora", "--split-edges", "0.85,0.05,0.1", "--normalize-features", "row"), METIS),
}
"""By dataset: a folder of DATA with flags of import, and flags of partition."""
# -- runs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoldenRun:
    """One run: `settings` are called as flags are, with `_` for `-`.

    epochs_before: train so many epochs first, then go on in the same folder. stopped: the first start is ended by a
    signal after its first epoch. predictions: requests of `leapmpi.predict` on its weights.
    """

    name: str
    ranks: int
    data: str
    settings: Settings
    epochs_before: int = 0
    stopped: bool = False
    predictions: tuple[Settings, ...] = field(default=())


# Not Adam, whose first steps blow rounding errors up where the true gradient is zero: losses in float64 then agree
# closely even where the order of a sum has changed.
COMMON: Settings = {
    "epochs": 2, "batch_size": 160, "hidden": 8, "heads": 2, "fanout": "5,4", "seed": 3, "dtype": "float64",
    "optimizer": "sgd", "momentum": 0.9, "lr": 0.05, "eval_every": 2, "threads": 1, "device": "cpu",
    "log_level": "error", "checkpoint_every": "0",
}  # fmt: skip
OPTIONS = {
    "heads": ("gat", "gatv2", "rgat", "hgt", "simple-hgn"), "attention_dropout": ("gat", "gatv2", "rgat", "simple-hgn"),
    "aggregate": ("sage", "film", "deepgcn"),
    "learn_scalars": ("gin", "deepgcn"), "message_norm": ("deepgcn",), "bases": ("rgcn",), "blocks": ("rgcn",),
    "softmax": ("rgat",),
}  # fmt: skip
"""Options of models, and the models that have them."""
ADAM: Settings = {"optimizer": "adam", "momentum": 0.0, "lr": 0.01}
FULL: Settings = {"batch_size": "full", "fanout": "all,all"}
LOGITS: tuple[Settings, ...] = ({},)
PREDICTIONS: tuple[Settings, ...] = ({}, {"what": "embeddings"}, {"what": "classes", "vertices": "val"})

MODELS: dict[str, Settings] = {
    "sage": {},
    "max": {"model": "sage", "aggregate": "max"},
    "gcn": {"model": "gcn"},
    "gat": {"model": "gat"},
    "gatv2": {"model": "gatv2", "jumping": "cat"},
    "gin": {"model": "gin", "learn_scalars": True},
    "film": {"model": "film", "jumping": "max"},
    "deepgcn": {"model": "deepgcn", "message_norm": True, "learn_scalars": True},
    "power": {"model": "deepgcn", "aggregate": "power", "residual": True},
}
PLAIN = {name: MODELS[name] for name in ("sage", "gat")}
"""Those that meet more numbers of ranks."""


def _run(name: str, ranks: int, data: str, *settings: Settings, **more: Any) -> GoldenRun:
    joined = {key: value for each in (COMMON, *settings) for key, value in each.items()}
    # Options stand by their names; each model is given those that it has.
    model = joined.get("model", "sage")
    options = {name: joined.pop(name) for name in OPTIONS if name in joined}
    given = tuple(f"{name}={value}" for name, value in options.items() if model in OPTIONS[name])
    joined |= {"model_option": given} if given else {}
    return GoldenRun(f"{name}-{ranks}", ranks, data, joined, **more)


def _strategies(
    part: str, data: str, models: dict[str, Settings], ranks: int, remote: tuple[str, ...] = REMOTE
) -> Iterator[GoldenRun]:
    """Mini-batches under all strategies and remote modes; those that a model refuses are recorded as refused."""
    for model, settings in models.items():
        for strategy in ("leap", "pull", "owner"):
            for mode in remote:
                asks = LOGITS if (strategy, mode) == ("leap", "auto") else ()
                chosen = {"strategy": strategy, "remote": mode}
                yield _run(f"{part}/{model}-{strategy}-{mode}", ranks, data, settings, chosen, predictions=asks)
        for strategy in ("naive", "p3"):
            yield _run(f"{part}/{model}-{strategy}", ranks, data, settings, {"strategy": strategy})


def _varied(part: str, strategy: Settings, cases: Cases) -> Iterator[GoldenRun]:
    """The cases on 3 and on 4 ranks by turns."""
    for number, (name, (data, settings)) in enumerate(cases.items()):
        yield _run(f"{part}/{name}", 3 + number % 2, data, strategy, settings)


MINI_BATCHES: Cases = {
    # Time steps, merging.
    "ring-raw": ("small", {"time_steps": "N", "remote": "raw"}),
    "ring-partial-paper": ("small", {"time_steps": "2", "remote": "partial", "merge": "paper"}),
    "ring-projected-balanced": ("small", {"time_steps": "2", "remote": "projected", "merge": "balanced"}),
    "steps-sums-random": ("small", {"time_steps": "2", "remote": "sums", "merge": "random"}),
    # Rows: caches, files, ahead.
    "cache-vip": ("small", {"cache": 0.1, "remote": "raw"}),
    "cache-presample-ahead": ("hash", {"cache": 0.2, "remote": "raw", "prefetch": "2"}),
    "feature-memory": ("small", {"feature_memory": "8K", "remote": "raw"}),
    "ahead-2": ("hash", {"prefetch": "2", "remote": "raw", "input_dropout": 0.2}),
    "ahead-1-partial": ("hash", {"prefetch": "1", "remote": "partial"}),
    "ahead-1-owner": ("hash", {"prefetch": "1", "strategy": "owner", "remote": "partial"}),
    "ahead-0": ("hash", {"prefetch": "0", "remote": "auto"}),
    # Kinds of rows and labels.
    "sparse-raw": ("sparse", {"model": "gcn", "remote": "raw"}),
    "sparse-partial": ("sparse", {"remote": "partial"}),
    "sparse-projected-gat": ("sparse", {"model": "gat", "remote": "projected"}),
    "sparse-owner": ("sparse", {"strategy": "owner", "model": "gcn"}),
    "sparse-naive": ("sparse", {"strategy": "naive"}),
    "sparse-p3": ("sparse", {"strategy": "p3", "model": "gcn"}),
    "columns-p3": ("columns", {"strategy": "p3"}),
    "several-labels": ("several", {"remote": "partial"}),
    "targets": ("targets", {"remote": "projected", "loss": "mae"}),
    # Samplers and fan-outs.
    "labor-0": ("small", {"sampler": "labor-0", "sampler_option": ("fixed-size=no",), "remote": "partial"}),
    "labor-i-owner": ("small", {"sampler": "labor-i", "strategy": "owner", "remote": "partial"}),
    "ladies": ("small", {"sampler": "ladies", "sampler_option": ("layer-size=40",), "model": "gcn", "remote": "sums"}),
    "fast-gcn": ("small", {"sampler": "fast-gcn", "strategy": "pull", "model": "gcn", "fanout": "60,60"}),
    "random-walk": ("small", {"sampler": "random-walk", "sampler_option": ("walks=5",), "remote": "raw"}),
    "with-replacement": ("small", {"sampler": "with-replacement", "strategy": "owner", "remote": "raw"}),
    "cluster-gcn": ("small", {"sampler": "cluster-gcn", "sampler_option": ("clusters=20", "per-batch=4"),
                              "fanout": "all,all"}),
    "graph-saint": ("small", {"sampler": "graph-saint", "sampler_option": ("size=150",), "fanout": "all,all"}),
    "all-neighbours": ("hash", {"fanout": "all,all", "remote": "partial"}),
    "all-owner": ("hash", {"fanout": "all,all,all", "strategy": "owner", "remote": "auto", "model": "gcn"}),
    "one-layer": ("small", {"fanout": "6", "remote": "partial"}),
    "three-layers": ("small", {"fanout": "4,3,2", "remote": "raw", "model": "gat"}),
    "three-layers-owner": ("small", {"fanout": "4,3,2", "strategy": "owner", "remote": "projected", "model": "gat"}),
    # Models.
    "batch-norm-partial": ("small", {"norm": "batch", "remote": "partial"}),
    "batch-norm-owner": ("small", {"norm": "batch", "strategy": "owner", "model": "gcn"}),
    "residual-raw": ("small", {"norm": "layer", "residual": True, "remote": "raw", "model": "gcn"}),
    "residual-owner": ("small", {"norm": "layer", "residual": True, "strategy": "owner", "remote": "raw"}),
    "input-dropout-partial": ("small", {"input_dropout": 0.3, "remote": "partial"}),
    "input-dropout-owner": ("small", {"input_dropout": 0.3, "strategy": "owner", "remote": "projected"}),
    "jumping-owner": ("small", {"jumping": "cat", "strategy": "owner", "model": "film"}),
    "attention-dropout-projected": ("small", {"attention_dropout": 0.2, "model": "gat", "remote": "projected"}),
    "attention-dropout-owner": ("small", {"attention_dropout": 0.3, "strategy": "owner", "model": "gatv2"}),
    # Optimisation.
    "adam-clipped": ("small", {**ADAM, "clip_norm": 0.5, "lr_schedule": "cosine", "warmup_epochs": 0.5}),
    "class-weights": ("small", {"class_weights": "balanced", "optimizer": "adamw", "momentum": 0.0,
                                "weight_decay": 0.01}),
    "float32-partial": ("small", {"dtype": "float32", "remote": "partial"}),
    "float32-owner": ("hash", {"dtype": "float32", "strategy": "owner", "remote": "partial"}),
    "float32-projected": ("hash", {"dtype": "float32", "remote": "projected", "model": "gat"}),
    "exact-scores": ("small", {"eval_fanout": "all", "eval_every": 1, "eval_limit": 200, "metric": "f1-macro"}),
}  # fmt: skip


def _full_batches() -> Iterator[GoldenRun]:
    for model, settings in MODELS.items():
        for ranks in (1, 3, 4) if model in PLAIN else (3,):
            for strategy in ("depcomm", "depcache", "hybrid"):
                asks = PREDICTIONS if strategy == "hybrid" else ()
                chosen = {"strategy": strategy, **FULL, "epochs": 4}
                yield _run(f"full/{model}-{strategy}", ranks, "small", settings, chosen, predictions=asks)
    cases = {
        "three-layers": ("hash", {"strategy": "hybrid", "fanout": "all,all,all"}),
        "memory-limit": ("hash", {"strategy": "hybrid", "memory_limit": "40M", "model": "gcn"}),
        "weights": ("carrying", {"strategy": "depcomm", "model": "gcn"}),
        "weights-hybrid": ("carrying", {"strategy": "hybrid"}),
        "edge-features": ("carrying", {"strategy": "depcomm", "model": "gat"}),
        "edge-features-hybrid": ("carrying", {"strategy": "hybrid", "model": "gatv2"}),
        "sparse": ("sparse", {"strategy": "depcache", "model": "gcn"}),
        "sparse-hybrid": ("sparse", {"strategy": "hybrid"}),
        "attention-dropout": ("small", {"strategy": "depcomm", "model": "gat", "attention_dropout": 0.2}),
        "residual": ("small", {"strategy": "depcomm", "norm": "layer", "residual": True}),
        "input-dropout": ("small", {"strategy": "hybrid", "input_dropout": 0.3}),
        "targets": ("targets", {"strategy": "hybrid"}),
        "float32": ("hash", {"strategy": "hybrid", "dtype": "float32"}),
    }
    yield from _varied("full", {**FULL, "epochs": 4}, cases)


def _predictions() -> Iterator[GoldenRun]:
    """Exact inference from weights of one epoch of `leap`."""
    for model, settings in MODELS.items():
        for ranks in (1, 3, 4) if model in PLAIN else (1, 3):
            short = {"strategy": "leap", "epochs": 1}
            yield _run(f"predict/{model}", ranks, "hash", settings, short, predictions=PREDICTIONS)
    slices: tuple[Settings, ...] = ({"memory_limit": "400k"}, {"what": "embeddings", "layer": 1}, {"vertices": "test"})
    cases: Cases = {
        "sparse": ("sparse", {}),
        "weights": ("carrying", {"model": "gcn"}),
        "edge-features": ("carrying", {"model": "gat"}),
        "several": ("several", {}),
        "three-layers": ("small", {"fanout": "3,3,3", "norm": "batch", "residual": True}),
        "float32": ("small", {"dtype": "float32"}),
    }
    for number, (name, (data, settings)) in enumerate(cases.items()):
        for ranks in (1, 3 + number % 2):
            short = {"strategy": "leap", "epochs": 1}
            yield _run(f"predict/{name}", ranks, data, settings, short, predictions=slices)


SHARDED: Cases = {
    "leap-raw": ("small", {"remote": "raw", "model": "gcn", "prefetch": "2"}),
    "leap-partial": ("hash", {"remote": "partial"}),
    "leap-sums": ("small", {"remote": "sums"}),
    "leap-projected": ("small", {"remote": "projected", "model": "gat", "time_steps": "N"}),
    "pull-raw": ("hash", {"strategy": "pull", "remote": "raw"}),
    "pull-partial": ("small", {"strategy": "pull", "remote": "partial", "model": "film"}),
    "weights": ("carrying", {"remote": "partial", "sampler": "weighted", "sampler_option": ("weights=edge",)}),
    "edge-features": ("carrying", {"strategy": "pull", "remote": "raw", "model": "gat"}),
    "temporal": ("carrying", {"remote": "partial", "sampler": "temporal", "sampler_option": ("window=25",)}),
    "owner": ("small", {"strategy": "owner", "remote": "partial"}),
    "owner-gat": ("hash", {"strategy": "owner", "remote": "projected", "model": "gat"}),
    "owner-weights": ("carrying", {"strategy": "owner", "remote": "partial", "model": "gcn"}),
    "depcomm": ("small", {"strategy": "depcomm", **FULL}),
    "depcomm-gat": ("carrying", {"strategy": "depcomm", "model": "gat", **FULL}),
    "depcache": ("small", {"strategy": "depcache", "model": "gcn", **FULL}),
    "hybrid": ("hash", {"strategy": "hybrid", **FULL}),
    "hybrid-weights": ("carrying", {"strategy": "hybrid", "model": "gcn", **FULL}),
    "labor-i": ("small", {"sampler": "labor-i", "remote": "projected"}),
    "ladies": ("small", {"sampler": "ladies", "strategy": "pull", "remote": "raw", "model": "gcn"}),
    "random-walk": ("small", {"sampler": "random-walk", "remote": "partial"}),
    "links": ("links", {"task": "link", "strategy": "leap"}),
}

ROLES: Cases = {
    "sums": ("small", {"remote": "sums"}),
    "auto-gcn": ("hash", {"model": "gcn", "prefetch": "1"}),
    "gat": ("small", {"model": "gat", "strategy": "pull"}),
    "gin": ("small", {"model": "gin", "prefetch": "0"}),
    "sparse": ("sparse", {"model": "gcn"}),
    "edge-features": ("carrying", {"model": "gat", "strategy": "pull"}),
    "weights": ("carrying", {"model": "gcn", "input_dropout": 0.3}),
    "labor": ("small", {"sampler": "labor-0", "residual": True}),
}


def _roles() -> Iterator[GoldenRun]:
    for number, (name, (data, settings)) in enumerate(ROLES.items()):
        for ranks, preparing in (((3, 1), (4, 2)), ((3, 2), (4, 3)))[number % 2]:
            chosen = {"strategy": "leap", "remote": "raw", **settings, "prepare_ranks": preparing}
            yield _run(f"roles/{name}-{preparing}", ranks, data, chosen)


EDGES: Cases = {
    "link": ("links", {"task": "link", "negatives_per_edge": 2}),
    "link-raw-degree": ("links", {"task": "link", "remote": "raw", "negatives": "degree"}),
    "link-partial-in-batch": ("links", {"task": "link", "remote": "partial", "negatives": "in-batch"}),
    "link-projected-mlp": ("links", {"task": "link", "remote": "projected", "scorer": "mlp", "model": "gat"}),
    "link-pull-distmult": ("links", {"task": "link", "strategy": "pull", "scorer": "distmult", "norm": "batch"}),
    "link-keep-all": ("links", {"task": "link", "target_edges": "keep", "eval_negatives": "all", "metric": "hits-10"}),
    "link-naive": ("links", {"task": "link", "strategy": "naive"}),
    "link-p3": ("links", {"task": "link", "strategy": "p3"}),
    "class": ("kinds", {"task": "edge-class", "class_weights": "balanced"}),
    "class-partial": ("kinds", {"task": "edge-class", "remote": "partial", "target_edges": "leave-out"}),
    "class-pull-raw": ("kinds", {"task": "edge-class", "strategy": "pull", "remote": "raw", "scorer": "distmult"}),
    "class-naive": ("kinds", {"task": "edge-class", "strategy": "naive", "target_edges": "leave-out"}),
    "class-p3": ("kinds", {"task": "edge-class", "strategy": "p3", "model": "gcn"}),
    "class-several": ("kinds", {"task": "edge-class", "vary": ("model.hidden=8,4",),
                                "remote": "raw"}),
}  # fmt: skip

CARRIED = {name: MODELS[name] for name in ("sage", "gcn", "gat", "gin")}

CARRYING: Cases = {
    "ignored": ("carrying", {"edge_weights": "ignore", "model": "gcn", "remote": "sums"}),
    "weighted": ("carrying", {"sampler": "weighted", "sampler_option": ("weights=edge",), "remote": "partial"}),
    "temporal": ("carrying", {"sampler": "temporal", "sampler_option": ("window=25",), "strategy": "owner"}),
    "ring": ("carrying", {"model": "gat", "time_steps": "N", "remote": "projected"}),
}

LEARNED: Cases = {
    "leap-raw": ("bare", {"remote": "raw"}),
    "leap-partial": ("bare", {"remote": "partial"}),
    "leap-projected": ("bare", {"remote": "projected", "model": "gat"}),
    "leap-gcn": ("bare", {"model": "gcn", "prefetch": "2"}),
    "leap-auto-ring": ("bare", {"time_steps": "N", "model": "gin"}),
    "pull-raw": ("bare", {"strategy": "pull", "remote": "raw", "prefetch": "0"}),
    "pull-partial": ("bare", {"strategy": "pull", "remote": "partial", "model": "gcn", "optimizer": "adamw"}),
    "sharded": ("bare", {"topology": "sharded", "remote": "raw"}),
}

TYPED_MODELS: dict[str, Settings] = {
    "rgcn": {"model": "rgcn", "bases": 2},
    "rsage": {"model": "rsage"},
    "rgat": {"model": "rgat"},
    "rgat-across": {"model": "rgat", "softmax": "across"},
    "hgt": {"model": "hgt"},
    "simple-hgn": {"model": "simple-hgn"},
}

_EMBEDDING: Settings = {"model": "embedding", "fanout": "1", "relation_fanout": ("*=0",), "negatives": "shared",
                        "negatives_per_edge": 16, "eval_negatives": "all", "task": "link", "metric": "mrr"}  # fmt: skip

TYPED: Cases = {
    "blocks": ("typed-hash", {"model": "rgcn", "blocks": 5, "hidden": 10, "remote": "partial"}),
    "fanouts": (
        "typed",
        {"model": "rsage", "relation_fanout": ("author:writes:paper=2,3", "*:cites:*=0"), "remote": "projected"},
    ),
    "layer-norm": ("typed", {"model": "rgcn", "norm": "layer", "strategy": "owner"}),
    "ring": ("typed", {"model": "rgcn", "time_steps": "N", "remote": "raw"}),
    "three-layers": ("typed", {"model": "hgt", "fanout": "3,2,2", "remote": "partial"}),
    "sharded": ("typed-hash", {"model": "rgat", "topology": "sharded"}),
    "labor": ("typed", {"model": "rsage", "sampler": "labor-0", "strategy": "owner"}),
    "dropout": ("typed-hash", {"model": "simple-hgn", "attention_dropout": 0.2, "input_dropout": 0.2}),
    "float32": ("typed", {"model": "hgt", "dtype": "float32"}),
    "links": ("triples", {"model": "rgcn", "task": "link", "scorer": "distmult"}),
    "links-in-batch": ("triples", {"model": "rsage", "task": "link", "negatives": "in-batch", "strategy": "pull"}),
    "distmult": ("triples", {**_EMBEDDING, "scorer": "distmult"}),
    "complex": ("triples", {**_EMBEDDING, "scorer": "complex", "strategy": "pull"}),
    "rotate": ("triples", {**_EMBEDDING, "scorer": "rotate", "loss": "self-adversarial"}),
    "transe": ("triples", {**_EMBEDDING, "scorer": "transe", "loss": "margin"}),
}

REPLICAS: Cases = {
    "hidden-and-lr": ("small", {"vary": ("model.hidden=8,16", "train.lr=0.05,0.02")}),
    "raw": ("small", {"vary": ("model.hidden=8,4,6",), "remote": "raw", "prefetch": "2"}),
    "sums": ("hash", {"vary": ("model.dropout=0.2,0.5",), "remote": "sums"}),
    "models": ("small", {"vary": ("model.name=sage,gcn,gat",)}),
    "seeds-pull": ("small", {"vary": ("model.seed=1,2,3",), "strategy": "pull"}),
    "optimizers": ("sparse", {"vary": ("train.optimizer=adam,sgd",), "model": "gcn"}),
    "sharded": ("small", {"vary": ("model.hidden=8,4",), "topology": "sharded"}),
    "cache": ("small", {"vary": ("model.hidden=8,4",), "remote": "raw", "cache": 0.1}),
}

RESTART: Cases = {
    "leap-raw": ("small", {"strategy": "leap", "remote": "raw", "prefetch": "2"}),
    "leap-partial": ("small", {"strategy": "leap", "remote": "partial", "lr_schedule": "cosine"}),
    "ring": ("hash", {"strategy": "leap", "time_steps": "N", "model": "gat", "remote": "projected"}),
    "pull": ("small", {"strategy": "pull", "norm": "batch"}),
    "owner": ("hash", {"strategy": "owner", "remote": "partial"}),
    "p3": ("small", {"strategy": "p3", **ADAM}),
    "naive": ("small", {"strategy": "naive"}),
    "hybrid": ("small", {"strategy": "hybrid", **FULL}),
    "learned": ("bare", {"strategy": "leap", "missing_features": "learned:6", **ADAM}),
    "replicas": ("small", {"strategy": "leap", "vary": ("model.hidden=8,4",)}),
    "roles": ("small", {"strategy": "leap", "remote": "raw", "prepare_ranks": 1}),
    "sharded": ("carrying", {"strategy": "leap", "topology": "sharded", "model": "gcn"}),
    "links": ("links", {"strategy": "leap", "task": "link"}),
}


def _learned() -> Iterator[GoldenRun]:
    for number, (name, (data, settings)) in enumerate(LEARNED.items()):
        for ranks in (1, 3 + number % 2):
            chosen = {"strategy": "leap", **ADAM, "missing_features": "learned:6", **settings}
            yield _run(f"learned/{name}", ranks, data, chosen, predictions=LOGITS)


def _typed() -> Iterator[GoldenRun]:
    rows: Settings = {**ADAM, "missing_features": "learned:8"}
    for model, settings in TYPED_MODELS.items():
        for strategy in ("leap", "pull", "owner"):
            for number, mode in enumerate(("raw", "projected", "partial", "auto")):
                chosen = {"strategy": strategy, "remote": mode}
                yield _run(f"typed/{model}-{strategy}-{mode}", 3 + number % 2, "typed", rows, settings, chosen)
        for ranks, strategy in ((1, "hybrid"), (3, "depcomm"), (4, "hybrid")):
            yield _run(f"typed/{model}-{strategy}", ranks, "typed-hash", rows, settings, {"strategy": strategy, **FULL})
    for number, (name, (data, settings)) in enumerate(TYPED.items()):
        for ranks in (1, 3 + number % 2):
            yield _run(f"typed/{name}", ranks, data, {"strategy": "leap", **rows, **settings}, predictions=LOGITS)


def _restarts() -> Iterator[GoldenRun]:
    for number, (name, (data, settings)) in enumerate(RESTART.items()):
        yield _run(f"restart/{name}", 3 + number % 2, data, settings, {"epochs": 3}, epochs_before=1)
    for name in ("leap-raw", "owner", "hybrid", "replicas"):
        data, settings = RESTART[name]
        yield _run(f"restart/signal-{name}", 3, data, settings, {"epochs": 12}, stopped=True)


# -- real graphs ----------------------------------------------------------------------------------------------------

_WIDE: Settings = {"strategy": "leap", "batch_size": 256, "hidden": 16, "heads": 4, "fanout": "5,5", "seed": 0,
                   "dtype": "float32", "optimizer": "adam", "momentum": 0.0, "lr": 0.003}  # fmt: skip

REAL_RUNS: dict[str, tuple[int, str, Settings]] = {
    "leap": (1, "photo", {}),
    "gat-labor": (1, "cora", {"model": "gat", "sampler": "labor-0"}),
    "gcn-sparse": (1, "cora", {"model": "gcn", "norm": "layer", "residual": True}),
    "raw": (3, "photo", {"remote": "raw"}),
    "raw-drop-ahead": (3, "photo", {"remote": "raw", "input_dropout": 0.2, "prefetch": "2"}),
    "partial-sage": (3, "photo", {"remote": "partial"}),
    "partial-gcn-sparse": (3, "cora", {"remote": "partial", "model": "gcn"}),
    "projected-gat": (3, "photo", {"remote": "projected", "model": "gat"}),
    "projected-max": (3, "photo", {"remote": "projected", "aggregate": "max"}),
    "ring": (3, "photo", {"remote": "raw", "time_steps": "N"}),
    "ring-merged": (4, "photo", {"remote": "partial", "time_steps": "2", "merge": "balanced"}),
    "raw-cache": (4, "photo", {"remote": "raw", "cache": 0.1}),
    "raw-sparse": (4, "cora", {"remote": "raw", "sampler": "ladies"}),
    "pull-raw": (3, "photo", {"strategy": "pull", "remote": "raw"}),
    "pull-partial": (4, "photo", {"strategy": "pull", "remote": "partial", "sampler": "labor-i"}),
    "p3": (3, "photo", {"strategy": "p3"}),
    "p3-gat": (4, "photo", {"strategy": "p3", "model": "gat"}),
    "naive": (3, "photo", {"strategy": "naive"}),
    "naive-gat-sparse": (4, "cora", {"strategy": "naive", "model": "gat"}),
    "deepgcn-raw-ahead": (3, "photo", {"model": "deepgcn", "remote": "raw", "prefetch": "1"}),
    "deepgcn-partial": (3, "photo", {"model": "deepgcn", "aggregate": "power", "remote": "partial"}),
    "film-partial": (4, "photo", {"model": "film", "remote": "partial"}),
    "gatv2-projected": (3, "photo", {"strategy": "pull", "model": "gatv2", "remote": "projected"}),
    "gin-jumping": (4, "photo", {"model": "gin", "learn_scalars": True, "jumping": "cat"}),
    "batch-norm": (3, "photo", {"norm": "batch", "remote": "partial"}),
    "owner-deepgcn": (3, "photo", {"strategy": "owner", "model": "deepgcn", "fanout": "2,2,2,2"}),
    "owner-film-projected": (4, "photo", {"strategy": "owner", "model": "film", "remote": "projected"}),
    "owner-gcn-sparse": (4, "cora", {"strategy": "owner", "model": "gcn", "remote": "partial"}),
    "depcomm-gat": (3, "photo", {**FULL, "strategy": "depcomm", "model": "gat"}),
    "hybrid": (4, "photo", {**FULL, "strategy": "hybrid", "memory_limit": "100M"}),
    "depcache-sparse": (3, "cora", {**FULL, "strategy": "depcache", "model": "gcn"}),
    "link": (3, "cora-links", {"task": "link", "negatives_per_edge": 2}),
    "link-pull-mlp": (4, "cora-links", {"task": "link", "scorer": "mlp", "strategy": "pull", "norm": "batch"}),
    "replicas": (3, "photo", {"vary": ("model.hidden=8,16", "train.lr=0.01,0.003")}),
}


def golden_runs() -> dict[str, GoldenRun]:
    """All runs by name; those on real graphs where they are there."""
    leap: Settings = {"strategy": "leap"}
    found = [
        *_strategies("mini", "small", PLAIN, 1, ("raw", "partial", "auto")),
        *_strategies("mini", "small", MODELS, 3),
        *_strategies("mini", "hash", PLAIN, 4),
        *_varied("batches", leap, MINI_BATCHES),
        *_full_batches(),
        *_predictions(),
        *_varied("sharded", {**leap, "topology": "sharded"}, SHARDED),
        *_roles(),
        *_varied("edges", leap, EDGES),
        *_strategies("carrying", "carrying", CARRIED, 3),
        *_varied("carrying", leap, CARRYING),
        *_learned(),
        *_typed(),
        *_varied("replicas", leap, REPLICAS),
        *_restarts(),
    ]
    if DATA.is_dir():
        found += [_run(f"real/{name}", ranks, data, _WIDE, more) for name, (ranks, data, more) in REAL_RUNS.items()]
    runs = {each.name: each for each in found}
    assert len(runs) == len(found), "two runs have one name"
    return runs
