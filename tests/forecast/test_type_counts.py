"""Forecasts for typed graphs: what other ranks hold, by type of vertices and by relation."""

import numpy as np
import pytest

from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.forecast.simulator import Forecaster
from leapmpi.runs.text_tables import forecast_table
from tests.support.typed_models import SCHEMA, whole_graph

pytestmark = pytest.mark.compiles


@pytest.fixture
def forecast(tmp_path):
    """A function: settings -> the forecast of two ranks."""
    graph = whole_graph()
    write_dataset(tmp_path / "d", graph, np.arange(graph.vertices) % 2, 2, method="test", figures={}, seed=0)
    dataset = open_dataset(tmp_path / "d", typed=True)
    forecaster = Forecaster(dataset, load_topology(dataset))

    def make(**settings):
        values = {"data": str(tmp_path / "d"), "model.name": "rgcn", "model.hidden": 4, "sampling.fanout": "3,2"}
        given = {key.replace("__", "."): value for key, value in settings.items()}
        return forecaster.forecast("leap", Config.from_values({**values, **given}), 2)

    return make


def test_rows_of_types_add_up_to_the_remote_rows_and_to_the_bytes_that_travel(forecast):
    found = forecast(strategy__name="leap", strategy__remote="raw")
    types = {each["type"]: each for each in found.typed["types"]}
    assert sum(each["remote_rows"] for each in types.values()) == found.rows["remote"]
    assert sum(each["bytes"] for each in types.values()) == found.sent["features"]
    assert types["shelf"]["remote_rows"] == 0
    # Papers as stored; four numbers for each learned one.
    assert types["paper"]["held_bytes"] == 40 * 5 * 4
    assert types["author"]["held_bytes"] == 30 * 4 * 4 * 4
    assert types["paper"]["bytes"] >= types["paper"]["remote_rows"] * 5 * 4
    relations = {each["relation"]: each for each in found.typed["relations"]}
    assert list(relations) == [str(each) for each in SCHEMA.relations]
    assert relations["author:never:paper"] == {
        "relation": "author:never:paper", "remote_edges": 0, "remote_rows": 0, "bytes": 0
    }  # fmt: skip
    assert relations["venue:hosts:field"]["remote_rows"] == types["venue"]["remote_rows"] > 0
    assert all(each["remote_rows"] <= each["remote_edges"] for each in relations.values())


def test_the_tables_have_types_relations_and_the_all_reduce(forecast):
    found = forecast(strategy__name="leap").to_values()
    names = "left_out", "too_large", "auto", "topology", "feature_memory", "memory_split", "rates", "roles"
    empty = {key: [] for key in names}
    text = forecast_table({**empty, "forecasts": [found]})
    assert "author:writes:paper" in text
    assert "author:never:paper" not in text
    assert "gradients" in text
    assert "MiB as stored" in text


def test_strategies_that_compute_layer_by_layer_have_none(forecast):
    assert forecast(strategy__name="owner").typed is None
