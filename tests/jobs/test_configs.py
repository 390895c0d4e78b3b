"""jobs/configs: every file is a valid config or sweep; every recipe stands in the README, with a published figure."""

import math
from dataclasses import replace

import numpy as np
import pytest

from leapmpi import train
from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import read_sweep
from leapmpi.config.toml import read_toml
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from tests.support.graphs import random_graph
from tests.support.launch import PROJECT
from tests.support.typed_graphs import typed_graph

FOLDER = PROJECT / "jobs/configs"
CONFIGS = sorted(path for path in FOLDER.rglob("*.toml") if path.name != "graphs.toml")
SWEEPS = [path for path in CONFIGS if path.parent.name in ("leapgnn", "samplers")]
RECIPES = [path for path in CONFIGS if path.parent.name == "recipes"]


def test_every_folder_of_configs_is_known_here():
    assert {path.parent.name for path in CONFIGS} == {"accuracy", "leapgnn", "recipes", "samplers"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_is_valid(path, tmp_path):
    if path in SWEEPS:
        sweep = read_sweep(path)
        shared = Config().assigned(sweep.base, str(path))
        assert [sweep.config(index, shared, tmp_path) for index in range(len(sweep.points))]
    else:
        Config.from_values(read_toml(path), str(path))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_readme_has_a_published_figure_for_each_recipe(path):
    rows = [line.split("|") for line in (FOLDER / "recipes/README.md").read_text().splitlines() if line[:1] == "|"]
    (row,) = [row for row in rows if f"`{path.stem}`" in row[1]]
    assert any(character.isdigit() for character in row[3])
    assert row[-2].strip() == "not run here"


SHAPES = {
    "ogbn-arxiv": (128, 40, False), "ogbn-products": (100, 47, False), "ogbn-proteins": (8, 112, True),
    "reddit": (602, 41, False), "ppi": (50, 121, True),
}  # fmt: skip
"""Of the data of the recipes: features, classes or labels, and whether a vertex has several."""


def schema_of(target, columns, relations):
    vertices = tuple(VertexType(name, 40, width, "float32" if width else None) for name, width in columns.items())
    reverse = [Relation(d, f"rev_{name}", s, n) for n, (s, name, d) in enumerate(relations)]
    return GraphTypes(vertices, (*(Relation(*each) for each in relations), *reverse), target)


TYPED = {
    "ogbn-mag": (
        schema_of(
            "paper",
            {"author": 0, "field_of_study": 0, "institution": 0, "paper": 128},
            [("author", "affiliated_with", "institution"), ("author", "writes", "paper"),
             ("paper", "cites", "paper"), ("paper", "has_topic", "field_of_study")],
        ),
        349,
    ),
    "hgb-dblp": (
        schema_of(
            "author",
            {"author": 334, "paper": 4231, "term": 50, "venue": 0},
            [("author", "writes", "paper"), ("paper", "has", "term"), ("paper", "appears_in", "venue")],
        ),
        4,
    ),
    "mag240m": (
        schema_of(
            "paper",
            {"author": 0, "institution": 0, "paper": 768},
            [("author", "affiliated_with", "institution"), ("author", "writes", "paper"),
             ("paper", "cites", "paper")],
        ),
        153,
    ),
    "igbh": (
        schema_of(
            "paper",
            {"author": 64, "fos": 64, "institute": 64, "paper": 64},
            [("author", "affiliated_to", "institute"), ("paper", "cites", "paper"), ("paper", "topic", "fos"),
             ("paper", "written_by", "author")],
        ),
        19,
    ),
    "hgb-acm": (
        schema_of(
            "paper",
            {"paper": 1902, "author": 1902, "subject": 1902, "term": 0},
            [("paper", "cites", "paper"), ("paper", "by", "author"), ("paper", "on", "subject"),
             ("paper", "has", "term")],
        ),
        3,
    ),
}  # fmt: skip
"""Of the typed data of the recipes: types with their features, relations, and classes."""


@pytest.mark.compiles
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains_a_small_graph_with_the_features_and_labels_of_its_own(path, tmp_path):
    data, rng = path.stem.rpartition("-")[0], np.random.default_rng(0)
    if data in TYPED:
        types, classes = TYPED[data]
        graph = replace(typed_graph(types, edges=80), classes=classes)
    else:
        features, classes, several = SHAPES[data]
        labels = rng.integers(0, 2, (150, classes)).astype(np.float32) if several else rng.integers(0, classes, 150)
        rows = rng.standard_normal((150, features)).astype(np.float32)
        graph = replace(random_graph(n=150), features=rows, labels=labels, classes=classes)
    parts = np.zeros(graph.vertices, np.int32)
    write_dataset(tmp_path / "data", graph, parts, 1, method="test", figures={}, seed=0)
    recipe = Config.from_values(read_toml(path), str(path))
    short = {"train.epochs": 1, "run.threads": 1, "run.device": "cpu", "run.log_level": "error"}
    run = train(recipe.replaced({**short, "data": str(tmp_path / "data"), "run.folder": str(tmp_path / "run")}))
    assert run.finished
    assert math.isfinite(run.summary["epochs"][0]["loss"])
    assert 0 <= run.summary["best"]["test"] <= 1
