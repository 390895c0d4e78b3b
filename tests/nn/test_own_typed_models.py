"""Users' modules for typed graphs give what they give on the whole graph; mistakes get a sentence."""

import re
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from leapmpi.config.sections import ModelConfig
from leapmpi.errors import ConfigError
from leapmpi.nn.model import build_model
from leapmpi.nn.own.batch_check import examine
from leapmpi.nn.own.relation_graph import edge_types
from leapmpi.nn.tensors import to_tensors
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.launch import PROJECT
from tests.support.typed_models import SCHEMA, all_rows, drawn_blocks, schema, whole_graph

OWN = f"{PROJECT}/tests/support/own_typed_module.py:Net"
NAMES = [OWN]
if find_spec("torch_geometric"):
    NAMES += [f"{PROJECT}/tests/support/pyg_typed.py:{name}" for name in ("Hetero", "copied", "Transformer")]
CLASSES, KEY, ROOTS = 3, DrawKey(TRAIN, 5, 2, 7), np.arange(0, 40, 2)


@pytest.fixture(scope="module")
def graph():
    return whole_graph()


@pytest.fixture(scope="module")
def rows(graph):
    learned = torch.from_numpy(np.random.default_rng(1).standard_normal((35, 4))).requires_grad_()
    return all_rows(graph, 6, learned)


def built(name, hops=2, **settings):
    config = ModelConfig(name=name, hidden=6, **{"dropout": 0.3} | settings)
    return build_model(config, hops, 6, CLASSES, 0, torch.float64, schema=schema(hops))


@pytest.fixture
def sample(graph, rows):
    """A function: roots -> their blocks of all in-neighbours, and the rows of the outermost sources."""

    def take(roots):
        blocks = drawn_blocks(graph, roots, 2, most=graph.vertices)
        return [to_tensors(block) for block in blocks], rows[blocks[-1].src]

    return take


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.rpartition(":")[2])
def test_a_module_gives_what_it_gives_on_the_whole_graph_and_does_not_see_where_roots_are(name, graph, rows, sample):
    model = built(name)
    types = rows.types.numpy()
    number = np.arange(graph.vertices) - graph.typed.offsets[types]
    target = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    pairs = np.stack([number[graph.indices], number[target]])
    edges = {
        each: torch.from_numpy(pairs[:, graph.edge_data.relation == r]) for r, each in enumerate(edge_types(SCHEMA))
    }
    widths = schema(2).columns.tolist()
    by_type = {each.name: rows.of_type(t, widths[t]) for t, each in enumerate(SCHEMA.vertices)}
    # The module as it is, without blocks.
    whole = model.module.eval()(by_type, edges)
    whole = whole["paper"] if isinstance(whole, dict) else whole
    logits = model(*sample(ROOTS))
    torch.testing.assert_close(logits, whole[ROOTS], rtol=1e-10, atol=1e-12)
    # With masks of dropout, among all roots and among half of them.
    assert examine(model, sample(ROOTS), [sample(ROOTS[n::2]) for n in (0, 1)], KEY) == []


def test_rows_that_are_learned_get_the_gradient_of_their_use(rows, sample):
    built(OWN)(*sample(ROOTS), KEY).square().sum().backward()
    assert rows.learned.grad.abs().sum() > 0
    rows.learned.grad = None


def test_a_graph_without_vertices_gives_no_row(rows, sample):
    assert built(OWN)(*sample(np.empty(0, np.int64))).shape == (0, CLASSES)


FAULTY = """
import torch
from torch import nn
from tests.support.own_typed_module import Mean, Net

class Taking(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels["paper"], out_channels)

class Plain(Taking):
    def forward(self, x):
        return self.lin(x)

class Lacking(Net):
    def forward(self, x_dict, edge_index_dict):
        return {t: h for t, h in super().forward(x_dict, edge_index_dict).items() if t != "paper"}

class Changing(Net):
    def forward(self, x_dict, edge_index_dict):
        return super().forward(x_dict, {r: each.clone() for r, each in edge_index_dict.items()})

class Few(Taking):
    def forward(self, x_dict, edge_index_dict):
        return self.lin(x_dict["paper"])

class Inventing(Taking):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        self.mean = Mean(3, 3, out_channels)

    def forward(self, x_dict, edge_index_dict):
        x = torch.ones(len(x_dict["paper"].tolist()), 3)
        return self.mean((x, x), edge_index_dict["paper", "cites", "paper"])
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Plain", r"forward takes \(x\), and the graph is typed; write forward\(x_dict, edge_index_dict\)"),
        ("Lacking", "returned rows of author, field, venue, shelf, but the target type is paper"),
        ("Changing", "gets an edge_index .*other than the one that forward was given"),
        ("Few", "--fanout names 2 layers"),
        ("Inventing", "gets rows that are not made of those that forward was given"),
    ],
)
def test_mistakes_get_a_sentence(name, message, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    with pytest.raises(ConfigError, match=message):
        built(f"{tmp_path}/faulty.py:{name}")


def test_layers_in_parts_are_refused_for_typed_graphs(tmp_path):
    (tmp_path / "layer.py").write_text("from leapmpi.nn.models.gcn import GCNLayer\n")
    with pytest.raises(ConfigError, match="a layer in parts is not given types"):
        built(f"{tmp_path}/layer.py:GCNLayer")


def test_the_example_of_the_page_reads_all_relations():
    pytest.importorskip("torch_geometric")
    text = (PROJECT / "leapmpi/nn/README.md").read_text()
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "x_dict" in each]
    exec(block, found := {})
    relations = [("author", "writes", "paper"), ("paper", "rev_writes", "author")]
    rows = {"author": torch.randn(3, 4), "paper": torch.randn(5, 6)}
    edges = [torch.tensor([[0, 2, 1], [4, 0, 0]]), torch.tensor([[4, 0, 0], [0, 2, 1]])]
    model = found["Net"](8, CLASSES, 2, (list(rows), relations))
    assert model(rows, dict(zip(relations, edges, strict=True))).shape == (5, CLASSES)
