"""Attention over relations against the formulas of papers, edge by edge, in double precision."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from leapmpi.errors import ConfigError
from leapmpi.nn.attention_links import with_links
from leapmpi.nn.model import build_model
from leapmpi.nn.share_forms import LogarithmCombination
from leapmpi.nn.tensors import to_tensors
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.typed_models import (
    EMPTY,
    PRUNED,
    SCHEMA,
    all_rows,
    assert_same_gradients,
    built,
    dense_inputs,
    dense_norm,
    drawn_blocks,
    gradients,
    owned,
    schema,
    whole_graph,
)

pytestmark = pytest.mark.compiles

HIDDEN, CLASSES, HEADS = 6, 3, 2
KEY = DrawKey(TRAIN, 5, 2, 7)
MODELS = {
    "rgat": ("rgat", {}),
    "rgat across": ("rgat", {"softmax": "across"}),
    "hgt": ("hgt", {}),
    "simple-hgn": ("simple-hgn", {}),
}


@pytest.fixture(scope="module")
def graph():
    return whole_graph()


@pytest.fixture
def made(model_config):
    """A function: name in MODELS, layers, [settings] -> model whose constants are away from their initial values."""

    def make(name, layers=2, dtype=torch.float64, **settings):
        model, options = MODELS[name]
        config = model_config(model, hidden=HIDDEN, heads=HEADS, **options, **settings)
        return built(config, layers, HIDDEN, CLASSES, dtype)

    return make


@pytest.fixture
def rows(graph):
    """The input rows of all vertices; those of featureless types learn."""
    learned = torch.from_numpy(np.random.default_rng(1).standard_normal((35, 4))).requires_grad_()
    return all_rows(graph, HIDDEN, learned)


def leaky(x, slope):
    return torch.where(x > 0, x, slope * x)


def softmax(scores):
    powers = [(each - max(scores)).exp() for each in scores]
    return [each / sum(powers) for each in powers]


def edges_of(layer, block, i):
    """The edges (place of the relation, source) of destination i that the layer reads, with their weights."""
    place = {r: k for k, r in enumerate(layer.types.relations.tolist())}
    every = range(block.indptr[i], block.indptr[i + 1])
    weight = np.ones(len(block.indices)) if block.weight is None else block.weight
    return [
        (place[int(block.relation[e])], int(block.indices[e]), float(weight[e]))
        for e in every
        if int(block.relation[e]) in place
    ]


# Dense layers read rows `h` after prefix and `below` before it, float[n_src, in].


def dense_rgat(layer, block, h, types, below):
    """Busbridge et al. (2019), equations 3 to 6: additive scores, within or across relations."""
    out = []
    for i in range(block.n_dst):
        edges, heads = edges_of(layer, block, i), []
        for k in range(HEADS):
            score, z = [], []
            for r, u, weight in edges:
                w = layer.neighbour[r, k]
                z.append(w @ h[u])
                attended = layer.attend_source[r, k] @ z[-1] + layer.attend_target[r, k] @ (w @ h[i])
                score.append(leaky(attended, 0.2) + np.log(weight))
            groups = [range(len(edges))]
            if layer.options.softmax == "within":
                groups = [[e for e, edge in enumerate(edges) if edge[0] == r] for r in {edge[0] for edge in edges}]
            total = h.new_zeros(HIDDEN // HEADS)
            for group in groups:
                shares = softmax([score[e] for e in group]) if group else []
                total = total + sum(share * z[e] for share, e in zip(shares, group, strict=True))
            heads.append(total)
        t = layer.types.destinations.tolist().index(int(types[block.src[i]]))
        out.append(torch.cat(heads) + layer.bias[t])
    found = torch.stack(out)
    return found if layer.number == len(layer.schema.layers) else leaky(found, 0.01)


def dense_hgt(layer, block, h, types, below):
    """Hu et al. (2020), equations 3 to 6: attention across relations, and a skip by type."""
    out, width = [], HIDDEN // HEADS
    sources, ends = layer.types.sources.tolist(), layer.types.destinations.tolist()
    kinds, of_head = [int(types[v]) for v in block.src], [slice(k * width, k * width + width) for k in range(HEADS)]
    key, value = {}, {}
    for u, t in enumerate(kinds):
        if t in sources:
            s = sources.index(t)
            key[u] = layer.key[s] @ h[u] + layer.source_bias[s, :HIDDEN]
            value[u] = layer.value[s] @ h[u] + layer.source_bias[s, HIDDEN:]
    for i in range(block.n_dst):
        d, edges, heads = ends.index(kinds[i]), edges_of(layer, block, i), []
        query = layer.query[d] @ h[i] + layer.query_bias[d]
        for k, part in enumerate(of_head):
            score = [
                (key[u][part] @ layer.attend[r, k]) @ query[part] * layer.prior[r, k] / np.sqrt(width) + np.log(weight)
                for r, u, weight in edges
            ]
            shares = softmax(score) if score else []
            messages = [value[u][part] @ layer.message[r, k] for r, u, _ in edges]
            heads.append(sum((a * m for a, m in zip(shares, messages, strict=True)), h.new_zeros(width)))
        a = torch.cat(heads)
        activated = a * (1 + torch.erf(a / np.sqrt(2))) / 2
        gate = 1 / (1 + (-layer.skip[d]).exp())
        out.append(gate * (layer.output[d] @ activated + layer.bias[d]) + (1 - gate) * h[i])
    return torch.stack(out)


def dense_simple_hgn(layer, block, h, types, below, carried=None, masks=None):
    """Lv et al. (2021), section 5: attention with edge types and itself, residual, rows of unit length.

    With `carried` (shares by destination's id, edge and head, of the layer below; then those of this one) equation 8:
    masks apply to the softmax, before it is mixed.
    """
    out, beta, left = [], layer.options.beta, {}
    for i in range(block.n_dst):
        edges, heads = [(len(layer.types.relations), i, 1.0), *edges_of(layer, block, i)], []
        width, first = layer.attend_source.shape[1], int(block.indptr[i]) + i
        for k in range(HEADS):
            w = layer.neighbour.weight[k * width : (k + 1) * width]
            score = [
                leaky(
                    layer.attend_source[k] @ (w @ h[u])
                    + layer.attend_target[k] @ (w @ h[i])
                    + layer.attend_edge[k] @ (layer.edge[k] @ layer.relation[r]),
                    0.2,
                )
                + np.log(weight)
                for r, u, weight in edges
            ]
            shares = softmax(score)
            if masks is not None:
                shares = [share * masks[first + e, k] for e, share in enumerate(shares)]
            if carried:
                shares = [(1 - beta) * a + beta * b for a, b in zip(shares, carried[block.src[i], k], strict=True)]
            left[block.src[i], k] = [share.detach() for share in shares]
            heads.append(sum(share * (w @ h[u]) for share, (_, u, _) in zip(shares, edges, strict=True)))
        found = sum(heads) / HEADS if layer.last else torch.cat(heads)
        if layer.number > 1:
            found = found + (layer.residual.weight @ below[i] if layer.last else below[i])
        found = found + layer.bias
        out.append(found / found.norm() if layer.last else torch.where(found > 0, found, found.exp() - 1))
    if carried is not None:
        carried.clear()
        carried.update(left)
    return torch.stack(out)


DENSE = {"rgat": dense_rgat, "hgt": dense_hgt, "simple-hgn": dense_simple_hgn}


def dense_model(name, model, graph, rows, blocks):
    types, h = rows.types.numpy(), dense_inputs(model, graph, rows)[blocks[-1].src]
    for layer, block in zip(model.layers, reversed(blocks), strict=True):
        h = DENSE[MODELS[name][0]](layer, block, dense_norm(layer, block, h, types), types, h)
    return h if model.head is None else h @ model.head.output.weight.t() + model.head.bias


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_those_of_the_papers_formula(name, norm, made, graph, rows, either_operations):
    model = made(name, norm=norm)
    blocks = drawn_blocks(graph, np.array([3, 0, 17, 39, 8]), 2)
    assert blocks[0].relation.max() < PRUNED
    found = model([to_tensors(block) for block in blocks], rows[blocks[-1].src])
    wanted = dense_model(name, model, graph, rows, blocks)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert_same_gradients(model, rows, found, wanted)


@pytest.mark.parametrize("beta", [0.05, 0.5])
@pytest.mark.parametrize("drops", [False, True])
def test_attention_of_the_layer_below_is_mixed_as_in_the_papers_equation(
    drops, beta, made, graph, rows, either_operations
):
    model = made("simple-hgn", 3, beta=beta, attention_dropout=0.3 * drops, norm="layer")
    assert all(layer.carries and layer.shares is None for layer in model.layers)
    blocks, key = drawn_blocks(graph, np.array([3, 0, 17, 39, 8]), 3, most=len(graph.indices)), KEY if drops else None
    tensors = with_links(model.layers, [to_tensors(block) for block in blocks])
    found = model(tensors, rows[blocks[-1].src], key)
    types, h, carried = rows.types.numpy(), dense_inputs(model, graph, rows)[blocks[-1].src], {}
    for layer, block, tensor in zip(model.layers, reversed(blocks), reversed(tensors), strict=True):
        edges = len(tensor.edges_with_self.indices)
        masks = layer.dropped(tensor, torch.ones(edges, HEADS, dtype=torch.float64), tensor.known_original, key)
        h = dense_simple_hgn(layer, block, dense_norm(layer, block, h, types), types, h, carried, masks)
    torch.testing.assert_close(found, h, rtol=1e-12, atol=1e-12)
    assert_same_gradients(model, rows, found, h)
    assert all(tensor.attention.values is None for tensor in tensors)
    # Another pass over the same blocks gives the same bits, and beta changes some.
    assert torch.equal(model(tensors, rows[blocks[-1].src], key), found)
    assert not torch.allclose(
        made("simple-hgn", 3, attention_dropout=0.3 * drops, norm="layer")(tensors, rows[blocks[-1].src], key), found
    )


def test_blocks_whose_edges_differ_are_not_linked(made, graph, rows):
    model = made("simple-hgn", beta=0.05)
    blocks = [to_tensors(block) for block in drawn_blocks(graph, np.arange(30), 2, most=1)]
    with pytest.raises(ConfigError, match="reads all edges in every layer; train by depcomm"):
        model(blocks, rows[blocks[-1].src_original.numpy()])
    with pytest.raises(AssertionError, match="holds all edges of a destination"):
        with_links(model.layers, [to_tensors(drawn_blocks(graph, np.arange(30), 1)[0]), blocks[1]])
    unlinked = [replace(block) for block in blocks]
    assert with_links(made("simple-hgn").layers, unlinked) == unlinked


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_a_sampler_multiply_exponentials(name, made, graph, rows):
    random, model = np.random.default_rng(4), made(name)
    blocks = drawn_blocks(graph, np.arange(6), 2)
    blocks = [replace(each, weight=random.random(each.edges).astype(np.float32) + 0.5) for each in blocks]
    found = model([to_tensors(block) for block in blocks], rows[blocks[-1].src])
    wanted = dense_model(name, model, graph, rows, blocks)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_edges_of_pruned_relations_add_nothing(name, made, graph, rows):
    # Exact inference computes all types, whose lists hold every relation.
    (layer,) = made(name, 1).layers
    assert PRUNED not in layer.types.relations
    block = drawn_blocks(graph, np.arange(30), 1)[0]
    relation = block.relation.copy()
    relation[::3] = PRUNED
    # Relations ascend within a destination; others keep their sources, which are of their type.
    order = np.lexsort((relation, np.repeat(np.arange(block.n_dst), np.diff(block.indptr))))
    block = replace(block, relation=relation[order], indices=block.indices[order])
    h = torch.randn(block.n_src, HIDDEN, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = layer.finish(None, layer.aggregate(to_tensors(block), layer.project(h), None), None)
    wanted = DENSE[MODELS[name][0]](layer, block, h, rows.types.numpy(), h)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_no_vertex_and_no_edge_give_no_row_and_no_gradient(name, made, graph, rows):
    model = made(name)
    blocks = drawn_blocks(graph, np.empty(0, np.int64), 2)
    found = model([to_tensors(block) for block in blocks], rows[blocks[-1].src])
    assert found.shape == (0, CLASSES)
    found.sum().backward()
    assert all(each.grad is None or not each.grad.any() for each in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_relation_without_edges_has_weights_that_get_no_gradient(name, made, graph, rows):
    model = made(name)
    blocks = drawn_blocks(graph, np.arange(20), 2)
    model([to_tensors(block) for block in blocks], rows[blocks[-1].src]).sum().backward()
    place = model.layers[0].types.relations.tolist().index(EMPTY)
    by_relation = [each for each in model.layers[0].parameters(recurse=False) if len(each) >= len(SCHEMA.relations) - 1]
    assert by_relation
    assert all(not each.grad[place].any() and each.grad.any() for each in by_relation)


def test_dropped_attention_depends_on_the_relation(made, graph, rows):
    layer = made("rgat across", 1, attention_dropout=0.5).layers[0]
    block = drawn_blocks(graph, np.arange(40), 1)[0]
    tensors, h = to_tensors(block), torch.ones(block.n_src, HIDDEN, dtype=torch.float64)
    whole, dropped, again = (layer.aggregate(tensors, h, key) for key in (None, KEY, KEY))
    assert torch.equal(dropped, again)
    assert not torch.allclose(dropped, whole)
    # The same ends under another relation have another mask: relation 3 joins the types of relation 0.
    swapped = np.choose(np.isin(block.relation, (0, 3)), (block.relation, 3 - block.relation))
    of_edge = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
    order = np.lexsort((swapped, of_edge))
    renamed = to_tensors(replace(block, relation=swapped[order].astype(np.uint8), indices=block.indices[order]))
    first, second = (layer.types.relations.tolist().index(r) for r in (0, 3))
    for each in (layer.neighbour, layer.attend_source, layer.attend_target):
        each.data[second] = each.data[first]
    assert torch.allclose(layer.aggregate(tensors, h, None), layer.aggregate(renamed, h, None))
    assert not torch.allclose(layer.aggregate(tensors, h, KEY), layer.aggregate(renamed, h, KEY))


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("name", ["rgat across", "hgt", "simple-hgn"])
def test_shares_of_any_owners_combine_to_the_layer(name, drops, made, graph, rows):
    layer = made(name, input_dropout=0.4 * drops, attention_dropout=0.3 * drops).layers[0]
    block, key = drawn_blocks(graph, np.arange(30), 2)[-1], KEY if drops else None
    tensors = to_tensors(block)
    wanted = layer(tensors, rows[block.src], key)
    wanted.square().sum().backward()
    due = gradients(layer, rows)

    # Destinations send first; then each of three owners computes the shares of its sources.
    form, names, count = layer.shares, tensors.dst_original, block.n_dst
    sent = form.project_sent(layer.prefix(rows[block.src[:count]], names, key), names)
    owner, values, positions = np.random.default_rng(2).integers(0, 3, block.n_src), [], []
    for k in range(3):
        partial, mine = owned(block, owner == k, rows)
        values.append(form.partial(replace(partial, sent=sent, dst_original=names), mine, key))
        selves = count + partial.local[0] if form.layout.separate_self else partial.local[0][:0]
        positions.append(torch.cat([torch.arange(count), selves]))
    total = (1 + form.layout.separate_self) * count
    combined = form.layout.combination(values[0].detach(), positions[0], total)
    others = torch.cat(values[1:])
    combined.add(others.detach(), torch.cat(positions[1:]))
    matrix = combined.rows.requires_grad_()
    found = layer.finish(*form.combined(torch.from_numpy(np.diff(block.indptr)), matrix), None)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    found.square().sum().backward()
    passed = [combined.local_gradient(matrix.grad), combined.arrived_gradient(matrix.grad)]
    torch.autograd.backward([values[0], others], passed)
    for each, gradient in gradients(layer, rows).items():
        torch.testing.assert_close(gradient, due[each], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("drops", [False, True])
def test_shares_of_any_owners_normalised_by_their_sums_add_up_to_the_layer(drops, made, graph, rows):
    layer = made("rgat", input_dropout=0.4 * drops, attention_dropout=0.3 * drops).layers[0]
    block, key = drawn_blocks(graph, np.arange(30), 2)[-1], KEY if drops else None
    tensors, form = to_tensors(block), layer.shares
    wanted = layer(tensors, rows[block.src], key)
    wanted.square().sum().backward()
    due = gradients(layer, rows)

    # Each of three owners computes softmaxes over its own edges, and the logarithms of those that others share.
    names = tensors.dst_original
    sent = form.project_sent(layer.prefix(rows[block.src[: block.n_dst]], names, key), names)
    sent = sent.unflatten(1, (form.slots, form.sent_width))
    owner, parts, begun, groups = np.random.default_rng(2).integers(0, 3, block.n_src), [], [], []
    for k in range(3):
        partial, mine = owned(block, owner == k, rows)
        numbers, relation = partial.edges.numbers.numpy(), partial.relation.numpy()
        cells, first, counts = np.unique(numbers * 100 + relation, return_index=True, return_counts=True)
        split = counts < partial.relation_sum.numpy()[first]
        assert 0 < split.sum() < len(split)
        runs = torch.from_numpy(first), torch.from_numpy(np.flatnonzero(split))
        slots = form.slot_of[relation[first]]
        partial = replace(partial, sent=sent[numbers[first], slots], dst_original=names, runs=runs)
        parts.append((partial, mine))
        begun.append(form.begin(partial, mine, key))
        assert begun[-1][-1].shape == (split.sum(), form.log_width)
        groups.append(cells[split])
    every, numbers = np.unique(np.concatenate(groups), return_inverse=True)
    own, arrived = (torch.from_numpy(each) for each in np.split(numbers, [len(groups[0])]))
    logs = [each[-1] for each in begun]
    combined = LogarithmCombination(logs[0].detach(), own, len(every))
    others = torch.cat(logs[1:])
    combined.add(others.detach(), arrived)
    totals, found, start = combined.rows.requires_grad_(), 0, 0
    for (partial, mine), each, cells in zip(parts, begun, groups, strict=True):
        whole = totals[numbers[start : start + len(cells)]]
        found, start = found + form.partial(replace(partial, begun=(*each, whole)), mine, key), start + len(cells)
    output = layer.finish(None, form.added(tensors, found), None)
    torch.testing.assert_close(output, wanted, rtol=1e-12, atol=1e-12)
    output.square().sum().backward(retain_graph=True)
    passed = [combined.local_gradient(totals.grad), combined.arrived_gradient(totals.grad)]
    torch.autograd.backward([logs[0], others], passed)
    for name, gradient in gradients(layer, rows).items():
        torch.testing.assert_close(gradient, due[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("rgat", {"heads": 4}, "must be a multiple of --model-option heads"),
        ("rgat", {"norm": "batch"}, "give --norm layer"),
        ("hgt", {"heads": 4}, "must be a multiple of --model-option heads"),
        ("simple-hgn", {"beta": 1}, "beta: 1.0 is too large; it must be less than 1"),
        ("simple-hgn", {"beta": -0.1}, "beta: -0.1 is too small"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(model, changes, message, model_config):
    with pytest.raises(ConfigError, match=message):
        build_model(model_config(model, hidden=HIDDEN, **changes), 2, HIDDEN, CLASSES, 0, schema=schema(2))
