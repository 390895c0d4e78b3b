"""What goes with what: every row of the table holds in its case and in no run of defaults, and the docs show it."""

from pathlib import Path

import pytest

import leapmpi
from leapmpi.config.compatibility import ROWS, check, without_effect
from leapmpi.config.run_facts import Facts
from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError

ROLES = {"strategy.prepare_ranks": 1}
SPLIT = {"run.topology_memory": "auto", "strategy.feature_memory": "1G"}
LEARNED = {"features": False}
TYPED = {"typed": True, "edge_weights": False}
BY_ROOT = {"bounds_by_root": True}
MIXED = {"model.name": "simple-hgn", "model.options": ["beta=0.05"]}
REFUSED = [
    ({"strategy.memory_limit": "1G", "strategy.time_steps": "2"}, {}, "strategy.memory_limit: the limit chooses"),
    ({"train.early_stop": 2, "evaluate.every": 0}, {}, "train.early_stop: it counts evaluations"),
    ({"strategy.vary": "model.hidden=4,8", "strategy.time_steps": "N"}, {}, "strategy.time_steps: N does not go with"),
    ({"strategy.vary": "model.hidden=4,8", "strategy.remote": "partial"}, {}, "strategy.remote: partial does not go"),
    ({**ROLES, "strategy.name": "p3"}, {}, "strategy.name: with --prepare-ranks p3 exchanges"),
    ({**ROLES, "strategy.remote": "partial"}, {}, "strategy.remote: with --prepare-ranks no rank has"),
    ({**ROLES, "strategy.time_steps": "N"}, {}, "strategy.time_steps: with --prepare-ranks models stay"),
    ({**ROLES, "strategy.memory_limit": "1G"}, {}, "strategy.memory_limit: with --prepare-ranks"),
    ({**ROLES, "strategy.time_steps": "measured"}, {}, "strategy.time_steps: with --prepare-ranks"),
    ({**ROLES, "strategy.vary": "model.hidden=4,8"}, {}, "strategy.vary: with --prepare-ranks one model"),
    ({**ROLES, "strategy.cache": 0.1}, {}, "strategy.cache: with --prepare-ranks"),
    ({**ROLES, "model.norm": "batch"}, {}, "model.norm: with --prepare-ranks"),
    ({**ROLES, "run.topology": "sharded"}, {}, "run.topology: with --prepare-ranks"),
    ({"run.topology_memory": "auto"}, {}, "run.topology_memory: auto is a share of --feature-memory"),
    (SPLIT, LEARNED, "run.topology_memory: learned rows are in files of their own"),
    (
        {"strategy.vary": "model.hidden=4,8", "strategy.name": "p3"},
        {"own_mode": True},
        "strategy.vary: p3 moves no",
    ),
    ({"strategy.balance_parts": "measured"}, {"reassigns_parts": False}, "strategy.balance_parts: auto does not move"),
    ({"train.early_stop": 2}, {"validation": False}, "train.early_stop: the dataset has no validation"),
    (ROLES, {"roots": "edges"}, "train.task: with --prepare-ranks"),
    (ROLES, LEARNED, "model.missing_features: with --prepare-ranks"),
    ({"strategy.name": "p3"}, {**LEARNED, "own_mode": True}, "strategy.name: p3 does not learn rows"),
    ({"strategy.vary": "model.hidden=4,8"}, LEARNED, "strategy.vary: one model learns the rows"),
    ({"strategy.cache": 0.1}, LEARNED, "strategy.cache: copies of learned rows"),
    (
        {"sampling.sampler": "ladies"},
        {**TYPED, "draws_by_relation": False},
        "sampling.sampler: ladies does not draw",
    ),
    ({}, {**TYPED, "edge_weights": True}, "sampling.edge_weights: weights of edges are not read in a typed graph"),
    ({}, {**TYPED, "edge_labels": True}, "train.task: edges of a typed graph have no classes"),
    (
        {"run.topology": "sharded"},
        {**TYPED, "roots": "edges"},
        "run.topology: edges of a typed graph are trained with the whole topology",
    ),
    (
        {"sampling.sampler": "temporal"},
        {**TYPED, "roots": "edges"},
        "sampling.sampler: temporal does not read times of typed edges",
    ),
    ({"strategy.name": "naive"}, {**TYPED, "own_mode": True}, "strategy.name: naive does not train typed graphs"),
    ({"strategy.name": "depcache"}, TYPED, "strategy.name: depcache does not train typed graphs"),
    ({"strategy.cache": 0.1}, TYPED, "strategy.cache: copies are kept of rows of one width"),
    ({"strategy.feature_memory": "1G"}, TYPED, "strategy.feature_memory: features of types"),
    (
        {"sampling.relation_fanout": "a:b:a=3"},
        {"roots": "vertices"},
        "sampling.relation_fanout: the dataset is a",
    ),
    ({"strategy.name": "owner"}, {**BY_ROOT, "by_layer": True}, "strategy.name: with bound=root"),
    ({"strategy.remote": "mixed"}, BY_ROOT, "strategy.remote: with bound=root"),
    ({"strategy.vary": "model.hidden=4,8"}, BY_ROOT, "strategy.vary: with bound=root"),
    (ROLES, BY_ROOT, "strategy.prepare_ranks: with bound=root"),
    ({"model.norm": "batch"}, BY_ROOT, "model.norm: with bound=root"),
    ({"run.topology": "sharded"}, BY_ROOT, "run.topology: with bound=root"),
    ({}, {**BY_ROOT, "roots": "edges"}, "train.task: with bound=root"),
    ({"train.optimizer": "sgd"}, LEARNED, "train.optimizer: learned rows are updated by Adam"),
    ({"train.loss": "mse"}, {"roots": "edges", "answers": "edges"}, "train.loss: mse is a loss of regressions"),
    (
        {**MIXED, "strategy.name": "hybrid"},
        {"roots": "vertices"},
        "model.options: beta mixes the attention of an edge in two layers, so",
    ),
    (
        {**MIXED, "strategy.name": "leap", "strategy.remote": "partial"},
        {"roots": "vertices"},
        "model.options: beta mixes",
    ),
    (
        {**MIXED, "strategy.name": "depcomm", "evaluate.fanout": "5,5"},
        {},
        "evaluate.fanout: beta mixes the attention of an edge in two layers, and samples differ",
    ),
    (
        {"link.negatives": "in-batch", "link.negatives_per_edge": 65, "train.batch_size": 64},
        {"roots": "edges"},
        "link.negatives_per_edge: 65 are more than the edges of a batch",
    ),
]
VERTICES = {"roots": "vertices", "answers": "single"}
IDLE = [
    ({}, {"optimizers": ("adam", "adamw")}, {"train.momentum"}),
    ({}, {"answers": "single"}, {"train.loss"}),
    ({}, {"steps": 1, "ranks": 4}, {"strategy.merge"}),
    ({}, {"roots": "edges"}, {"model.missing_features"}),
    ({}, {**LEARNED, "fetches_before_step": True}, {"strategy.prefetch"}),
    ({}, {"ranks": 1}, {"strategy.time_steps", "strategy.balance_parts"}),
    ({}, {"ranks": 4, "parts": 4}, {"strategy.balance_parts"}),
    ({"train.dtype": "bfloat16"}, {"on_host": True}, {"train.dtype"}),
    ({}, {"on_cpu": True}, {"run.mpi_device_path"}),
    ({}, {"roots": "vertices", **LEARNED}, {f"link.{name}" for name in
        ("scorer", "target_edges", "negatives", "negatives_per_edge", "eval_negatives")}),
    ({}, {"edge_labels": True}, {f"link.{name}" for name in ("negatives", "negatives_per_edge", "eval_negatives")}),
    ({"link.negatives": "all"}, {"roots": "edges"}, {"link.negatives_per_edge", "model.missing_features"}),
    ({}, {"edge_weights": False}, {"sampling.edge_weights"}),
    ({"sampling.fanout": (5,)}, {}, {"model.dropout"}),
    ({"sampling.fanout": (5,), "model.name": "deepgcn"}, {}, set()),
    ({"sampling.fanout": (5,), "model.name": "mine.py:Net"}, {}, set()),
]  # fmt: skip


def facts(values, known):
    return Facts(Config().assigned(values), **known)


@pytest.mark.parametrize(("values", "known", "sentence"), REFUSED)
def test_what_is_refused_is_a_sentence(values, known, sentence):
    with pytest.raises(ConfigError) as caught:
        check(facts(values, known))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(("values", "known", "keys"), IDLE)
def test_what_has_no_effect_is_named(values, known, keys):
    assert without_effect(facts(values, known)).keys() == keys


@pytest.mark.parametrize(
    "values",
    [
        {**MIXED, "strategy.name": "depcomm", "evaluate.fanout": "all"},
        {**MIXED, "strategy.name": "auto"},
        {"model.name": "simple-hgn", "model.options": ["beta=0.0", "heads=2"]},
        {"model.name": "gat", "model.options": ["heads=2"]},
    ],
)
def test_beta_is_refused_only_where_it_mixes(values):
    check(facts(values, VERTICES))


def test_each_row_is_tried_and_none_holds_by_default():
    cases = [facts(values, known) for values, known, _ in (*REFUSED, *IDLE)]
    untried = [(row.key, row.with_what) for row in ROWS if not any(row.holds(each) for each in cases)]
    assert not untried
    assert not [row for row in ROWS if row.holds(Facts(Config()))]


def test_the_docs_show_the_table():
    page = (Path(leapmpi.__file__).parent / "training" / "README.md").read_text()
    lines = ["| setting | does not go with | |", "| --- | --- | --- |"]
    for row in sorted(ROWS, key=lambda row: (row.key, not row.refused)):
        lines.append(f"| `{row.key}` | {row.with_what} | {'refused' if row.refused else 'no effect'} |")
    assert "\n".join(lines) in page
