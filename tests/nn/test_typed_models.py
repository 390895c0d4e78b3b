"""R-GCN and R-SAGE against dense formulas in double precision, and their shares against whole layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from leapmpi.errors import ConfigError
from leapmpi.nn.kernels.relation_groups import _group_edges_tensor, group_edges
from leapmpi.nn.layer import share_step
from leapmpi.nn.model import build_model
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.ages import AGES
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.typed_models import (
    EMPTY,
    PRUNED,
    SCHEMA,
    all_rows,
    assert_same_gradients,
    built,
    dense_inputs,
    dense_layer,
    dense_norm,
    drawn_blocks,
    gradients,
    owned,
    schema,
    whole_graph,
)

pytestmark = pytest.mark.compiles

HIDDEN, CLASSES = 6, 3
KEY = DrawKey(TRAIN, 5, 2, 7)
MODELS = {
    "rsage": ("rsage", {}),
    "rsage mean": ("rsage", {"relations": "mean"}),
    "rgcn": ("rgcn", {}),
    "rgcn bases": ("rgcn", {"bases": 2}),
    "rgcn blocks": ("rgcn", {"blocks": 3, "relations": "mean"}),
}


@pytest.fixture(scope="module")
def graph():
    return whole_graph()


@pytest.fixture
def made(model_config):
    """A function: name in MODELS, layers, [settings] -> model with biases away from zero."""

    def make(name, layers=2, dtype=torch.float64, **settings):
        model, options = MODELS[name]
        config = model_config(model, hidden=HIDDEN, **options, **settings)
        return built(config, layers, HIDDEN, CLASSES, dtype, lambda name: name.endswith(("bias", "gain")))

    return make


@pytest.fixture
def rows(graph):
    """The input rows of all vertices; those of featureless types learn."""
    learned = torch.from_numpy(np.random.default_rng(1).standard_normal((35, 4))).requires_grad_()
    return all_rows(graph, HIDDEN, learned)


def dense_weights(layer):
    """The matrices of the relations of a layer by their definition."""
    if getattr(layer, "coefficients", None) is not None:
        sums = [[a * b for a, b in zip(row, layer.neighbour, strict=True)] for row in layer.coefficients]
        return torch.stack([sum(each) for each in sums])
    if getattr(layer.options, "blocks", 0):
        return torch.stack([torch.block_diag(*each) for each in layer.neighbour])
    return layer.neighbour


def dense_model(model, graph, rows, blocks):
    types, h = rows.types.numpy(), dense_inputs(model, graph, rows)[blocks[-1].src]
    for layer, block in zip(model.layers, reversed(blocks), strict=True):
        h = dense_layer(layer, block, dense_norm(layer, block, h, types), types, dense_weights(layer))
    return h


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_those_of_the_dense_formula(name, norm, made, graph, rows, either_operations):
    # Blocks of three hidden columns divide 6, but not the classes.
    model = made(name, norm=norm, **({"jumping": "cat"} if "blocks" in name else {}))
    blocks = drawn_blocks(graph, np.array([3, 0, 17, 39, 8]), 2)
    assert blocks[0].relation.max() < PRUNED
    tensors = [to_tensors(block) for block in blocks]
    if "blocks" in name:
        found, wanted = model.layers[0](tensors[-1], rows[blocks[-1].src]), None
        wanted = dense_layer(
            model.layers[0], blocks[-1], dense_inputs(model, graph, rows)[blocks[-1].src], rows.types.numpy(),
            dense_weights(model.layers[0]),
        )  # fmt: skip
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        return
    found = model(tensors, rows[blocks[-1].src])
    wanted = dense_model(model, graph, rows, blocks)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert_same_gradients(model, rows, found, wanted)


def test_single_precision_is_near_double(made, graph, rows):
    blocks = drawn_blocks(graph, np.arange(20), 2)
    tensors = [to_tensors(block) for block in blocks]
    double, single = (made("rgcn", dtype=dtype) for dtype in (torch.float64, torch.float32))
    given = rows[blocks[-1].src]
    found, wanted = single(tensors, given.to(torch.float32)), double(tensors, given)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def test_relations_and_types_beyond_the_roots_reach_have_no_parameters(made):
    model = made("rsage")
    first, last = model.layers
    assert last.types.destinations.tolist() == [0]
    assert last.types.relations.tolist() == [0, 1, 3, 4, 6]
    assert first.types.relations.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert first.types.destinations.tolist() == [0, 1, 2]
    assert len(last.neighbour) == 5
    assert len(last.own) == 1
    assert {name for name, _ in first.inputs.named_parameters()} == {
        "features_0", "learned_1", "features_2", "features_3"
    }  # fmt: skip


def test_a_mean_over_relations_divides_by_those_of_the_schema(made, graph):
    # Of the five relations that end at papers, one has no edge at all.
    v = 3
    (whole,), (mean,) = (made(name, 1).layers for name in ("rsage", "rsage mean"))
    block = to_tensors(drawn_blocks(graph, np.array([v]), 1)[0])
    h = torch.ones(block.n_src, HIDDEN, dtype=torch.float64)
    own = h[:1] @ whole.own[0].t() + whole.bias[0]
    summed, divided = (layer.aggregate(block, h, None) - own for layer in (whole, mean))
    torch.testing.assert_close(divided, summed / 5)
    assert EMPTY in whole.types.relations


def test_no_vertex_and_no_edge_give_no_row_and_no_gradient(made, graph, rows):
    model = made("rgcn")
    blocks = drawn_blocks(graph, np.empty(0, np.int64), 2)
    found = model([to_tensors(block) for block in blocks], rows[blocks[-1].src])
    assert found.shape == (0, CLASSES)
    found.sum().backward()
    assert all(not each.grad.any() for each in model.parameters())


@pytest.mark.parametrize("name", ["rsage mean", "rgcn bases"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_shares_of_any_owners_add_up_to_the_layer(name, dropout, made, graph, rows):
    layer = made(name, input_dropout=dropout).layers[0]
    block = drawn_blocks(graph, np.arange(30), 2)[-1]
    key = KEY if dropout else None
    wanted = layer(to_tensors(block), rows[block.src], key)
    wanted.square().sum().backward()
    due = gradients(layer, rows)

    # Owners of random sources; each counts, for its edges, all that their destination draws of the relation.
    owner = np.random.default_rng(2).integers(0, 3, block.n_src)
    shares = [share_step(layer, *owned(block, owner == k, rows), key) for k in range(3)]
    combined = sum(values for values, _ in shares).requires_grad_()
    found = layer.finish(None, combined, None)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    found.square().sum().backward()
    for _, learn in shares:
        learn(combined.grad)
    for each, gradient in gradients(layer, rows).items():
        torch.testing.assert_close(gradient, due[each], rtol=1e-10, atol=1e-12)


def test_groups_are_the_same_on_devices(graph):
    block = to_tensors(drawn_blocks(graph, np.arange(40), 2)[-1])
    found = group_edges(block.edges.indptr, block.relation)
    for mine, theirs in zip(found, _group_edges_tensor(block.edges.indptr, block.relation), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    order, first, destination, bounds = found
    for r in range(len(bounds) - 1):
        for g in range(bounds[r], bounds[r + 1]):
            for e in order[first[g] : first[g + 1]]:
                assert block.relation[e] == r
                assert block.edges.indptr[destination[g]] <= e < block.edges.indptr[destination[g] + 1]


@pytest.mark.parametrize(
    ("model", "changes", "typed", "message"),
    [
        ("rgcn", {"bases": 2, "blocks": 3}, True, "give bases or blocks"),
        ("rgcn", {"blocks": 4}, True, "blocks=4 does not divide"),
        ("rsage", {"norm": "batch"}, True, "give --norm layer"),
        ("rgcn", {}, False, "reads types of vertices"),
        ("sage", {}, True, "treats all vertices alike"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(model, changes, typed, message, model_config):
    config = model_config(model, hidden=HIDDEN, **changes)
    with pytest.raises(ConfigError, match=message):
        build_model(config, 2, HIDDEN, CLASSES, 0, schema=schema(2) if typed else None)


def test_weights_of_a_sampler_weigh_the_mean_of_a_relation(made, graph, rows):
    block = drawn_blocks(graph, np.arange(4), 2)[-1]
    weight = np.random.default_rng(4).random(block.edges).astype(np.float32) + 0.5
    layer, weighted = made("rsage").layers[0], replace(block, weight=weight)
    h = layer.prefix(rows[block.src], torch.from_numpy(block.src_original), None)
    found = layer._of_relations(to_tensors(weighted), h)
    place = {r: k for k, r in enumerate(layer.types.relations.tolist())}
    for i in range(block.n_dst):
        edges, wanted = np.arange(block.indptr[i], block.indptr[i + 1]), 0
        for r in set(block.relation[edges].tolist()):
            mine = edges[block.relation[edges] == r]
            each = torch.from_numpy(weight[mine].astype(np.float64))
            wanted = wanted + layer.neighbour[place[r]] @ (each @ h[block.indices[mine].tolist()] / each.sum())
        torch.testing.assert_close(found[i], torch.as_tensor(wanted, dtype=h.dtype).expand(HIDDEN))


def test_ages_add_a_mean_of_each_relation(model_config, graph):
    config = model_config("rsage", hidden=HIDDEN)
    model = build_model(config, 1, HIDDEN, CLASSES, 3, torch.float64, schema=replace(schema(1), ages=True))
    block, random = drawn_blocks(graph, np.arange(6), 1)[0], np.random.default_rng(2)
    aged = replace(block, ages=random.random((block.n_src, AGES), np.float32))
    layer, h = model.layers[0], torch.from_numpy(random.standard_normal((block.n_src, HIDDEN)))
    # A model begins without ages.
    without = layer.aggregate(to_tensors(block), h, None)
    torch.testing.assert_close(layer.aggregate(to_tensors(aged), h, None), without, rtol=0, atol=0)

    layer.age.data.copy_(torch.from_numpy(random.standard_normal(layer.age.shape)))
    wanted, ages = without.detach().clone(), torch.from_numpy(aged.ages).double()
    for v in range(block.n_dst):
        edges = slice(*block.indptr[v : v + 2])
        for place, r in enumerate(layer.types.relations):
            sources = block.indices[edges][block.relation[edges] == r]
            if len(sources):
                wanted[v] += layer.age[place].detach() @ ages[sources].mean(0)
    torch.testing.assert_close(layer.aggregate(to_tensors(aged), h, None), wanted, rtol=1e-12, atol=1e-12)


def test_an_embedding_is_the_learned_row_itself(model_config, graph):
    # A bias that all vertices share would move the point about which RotatE rotates.
    lacking = [each.feature_dim == 0 for each in SCHEMA.vertices].index(True)
    of_type = schema(1, learned=HIDDEN, target=lacking)
    model = build_model(model_config("embedding", hidden=HIDDEN), 1, HIDDEN, HIDDEN, 3, torch.float64, schema=of_type)
    for parameter in model.parameters():
        parameter.data += 1.0
    first, end = graph.typed.offsets[lacking : lacking + 2]
    learned = torch.randn(end - first, HIDDEN, dtype=torch.float64)
    (block,) = drawn_blocks(graph, np.arange(first, end), 1)
    found = model([to_tensors(block)], all_rows(graph, HIDDEN, learned)[block.src])
    assert torch.equal(found, learned[block.src[: len(found)] - first])
