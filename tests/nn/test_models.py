"""Models against dense formulas; independence of outputs and gradients from how roots are batched."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from leapmpi.errors import ConfigError
from leapmpi.nn.layer import projects_first
from leapmpi.nn.model import MODELS, build_model
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.worker_threads import set_threads
from tests.support.tasks import weighted_loss

pytestmark = pytest.mark.compiles

NAMES = ("gcn", "sage", "gat")
KEY = DrawKey(TRAIN, 5, 2, 7)
CLASSES, WIDTH = 4, 5
DROPOUT = {"dropout": 0.4, "input_dropout": 0.3, "attention_dropout": 0.3}


@pytest.fixture(scope="module")
def graph(random_graph):
    return random_graph()


@pytest.fixture(scope="module")
def features(graph):
    return torch.from_numpy(np.random.default_rng(1).standard_normal((graph.vertices, WIDTH)))


def build(config, layers, dtype=torch.float64):
    model = build_model(config, layers, WIDTH, CLASSES, 3, dtype)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "gain")):  # away from their initial constants, so that mistakes show
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=dtype)
    return model


@pytest.fixture
def logits(graph, features, sampled):
    """A function: model, fan-outs, roots, dropout key -> logits from one sample of all the roots."""

    def run(model, fanouts, roots, dropout=None):
        blocks, src = sampled(graph, fanouts, roots)
        return model(blocks, features[src], dropout)

    return run


def adjacency(graph):
    """Dense A with A[v, u] = 1 for u -> v, from the compressed rows."""
    a = torch.zeros(graph.vertices, graph.vertices, dtype=torch.float64)
    for v in range(graph.vertices):
        a[v, graph.indices[graph.indptr[v] : graph.indptr[v + 1]]] = 1
    return a


def dense_gcn(p, a, x, last):
    a = a + torch.eye(len(a))
    scale = torch.diag(a.sum(1) ** -0.5)
    h = scale @ a @ scale @ x @ p["neighbour.weight"].T + p["bias"]
    return h if last else h.relu()


def dense_sage(p, a, x, last):
    neighbours = a @ x / a.sum(1, keepdim=True).clamp(min=1)
    h = x @ p["own.weight"].T + neighbours @ p["neighbour.weight"].T + p["bias"]
    return h if last else h.relu()


def dense_gat(p, a, x, last):
    heads, width = p["attend_source"].shape
    z = (x @ p["neighbour.weight"].T).view(len(x), heads, width)
    mask = (a + torch.eye(len(a))) > 0
    out = []
    for h in range(heads):
        scores = z[:, h] @ p["attend_source"][h]
        scores = F.leaky_relu((z[:, h] @ p["attend_target"][h])[:, None] + scores[None, :], 0.2)
        out.append(scores.masked_fill(~mask, -torch.inf).softmax(1) @ z[:, h])
    if last:
        return sum(out) / heads + p["bias"]
    return F.elu(torch.cat(out, 1) + p["bias"])


def dense_sage_max(p, a, x, last):
    z = x @ p["neighbour.weight"].T
    largest = z.expand(len(x), *z.shape).masked_fill((a == 0).unsqueeze(2), -torch.inf).amax(1)
    neighbours = torch.where(a.sum(1, keepdim=True) > 0, largest, 0)
    h = x @ p["own.weight"].T + neighbours + p["bias"]
    return h if last else h.relu()


DENSE = {"gcn": dense_gcn, "sage": dense_sage, "gat": dense_gat, "sage max": dense_sage_max}


def dense_model(name, model, a, x):
    for number, layer in enumerate(model.layers):
        p = dict(layer.named_parameters())
        given = x
        if "norm.gain" in p:
            x = (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
            x = x * p["norm.gain"] + p["norm.bias"]
        x = DENSE[name](p, a, x, number == len(model.layers) - 1)
        if layer.residual is not None:
            x = x + (given @ p["residual.weight"].T if "residual.weight" in p else given)
    return x


def weighted_dense(name, p, a, weight, x, last):
    """The dense layer where edge (v, u) of `a` weighs weight[v, u], degrees being those of `a`."""
    if name == "gcn":
        scale = torch.diag((a.sum(1) + 1) ** -0.5)
        h = scale @ (a * weight + torch.eye(len(a))) @ scale @ x @ p["neighbour.weight"].T + p["bias"]
        return h if last else h.relu()
    if name == "sage":
        neighbours = (a * weight) @ x / a.sum(1, keepdim=True).clamp(min=1)
        h = x @ p["own.weight"].T + neighbours @ p["neighbour.weight"].T + p["bias"]
        return h if last else h.relu()
    heads, width = p["attend_source"].shape
    z = (x @ p["neighbour.weight"].T).view(len(x), heads, width)
    times, out = a * weight + torch.eye(len(a)), []
    for h in range(heads):
        source, target = z[:, h] @ p["attend_source"][h], z[:, h] @ p["attend_target"][h]
        share = F.leaky_relu(target[:, None] + source[None, :], 0.2).exp() * times
        out.append(share / share.sum(1, keepdim=True) @ z[:, h])
    return sum(out) / heads + p["bias"] if last else F.elu(torch.cat(out, 1) + p["bias"])


@pytest.mark.parametrize("name", NAMES)
def test_weighted_edges_give_the_dense_formula_with_weights(
    name, graph, features, sampled, model_config, either_operations
):
    model, a = build(model_config(name), 2), adjacency(graph)
    # As blocks hold them: in single precision.
    weight = torch.from_numpy(np.random.default_rng(3).uniform(0.2, 3, a.shape).astype(np.float32))
    blocks, src = sampled(graph, (-1, -1), np.arange(40))
    weighted = []
    for block in blocks:
        ids = torch.from_numpy(src)
        rows = ids[: block.n_dst].repeat_interleave(block.edges.counts)
        weighted.append(replace(block, weight=weight[rows, ids[block.edges.indices.long()]]))
    result, expected = model(weighted, features[src]), features
    for number, layer in enumerate(model.layers):
        expected = weighted_dense(name, dict(layer.named_parameters()), a, weight.double(), expected, number == 1)
    torch.testing.assert_close(result, expected[:40], rtol=1e-11, atol=1e-12)
    grads = torch.autograd.grad(result.square().sum(), list(model.parameters()))
    wanted = torch.autograd.grad(expected[:40].square().sum(), list(model.parameters()))
    for ours, theirs in zip(grads, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("extras", [{}, {"norm": "layer", "residual": True}])
def test_all_neighbours_give_the_dense_formula(
    name, layers, extras, graph, features, logits, model_config, either_operations
):
    kind = {"name": "sage", "aggregate": "max"} if name == "sage max" else {"name": name}
    model = build(model_config(**kind, **extras), layers)
    roots = np.random.default_rng(2).permutation(graph.vertices)[:25]
    result = logits(model, (-1,) * layers, roots)
    expected = dense_model(name, model, adjacency(graph), features)[roots]
    torch.testing.assert_close(result, expected, rtol=1e-11, atol=1e-12)
    grads = torch.autograd.grad(result.square().sum(), list(model.parameters()))
    wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    for ours, theirs in zip(grads, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", [True, False])
def test_either_side_of_the_aggregation_may_multiply(name, first, logits, model_config, set_order):
    model = build(model_config(name, **DROPOUT), 2)
    expected = logits(model, (3, 2), range(20), KEY)
    set_order(lambda layer, block, x: first or not layer.linear)
    torch.testing.assert_close(logits(model, (3, 2), range(20), KEY), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_sampled_sums_are_unbiased(name, graph, features, sampled, model_config):
    model = build(model_config(name), 1)
    exact = dense_model(name, model, adjacency(graph), features)[:8]
    total = torch.zeros_like(exact)
    with torch.no_grad():
        for iteration in range(1500):
            blocks, src = sampled(graph, (2,), range(8), KEY._replace(iteration=iteration))
            total += model(blocks, features[src])
    torch.testing.assert_close(total / 1500, exact, rtol=0, atol=0.1)


def test_a_maximum_refuses_weighted_edges(graph, features, sampled, model_config):
    (block,), src = sampled(graph, (3,), [0, 1])
    weighted = replace(block, weight=torch.ones(len(block.edges.indices)))
    with pytest.raises(ConfigError, match="aggregate=mean"):
        build(model_config("sage", aggregate="max"), 1)([weighted], features[src])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("dropout", [None, KEY])
def test_a_root_does_not_notice_its_company(name, layers, dropout, graph, logits, model_config):
    model = build(model_config(name, norm="layer", residual=layers == 2, **DROPOUT), layers)
    fanouts = (3, 2, 4)[:layers]
    roots = np.random.default_rng(layers).permutation(graph.vertices)
    together = logits(model, fanouts, roots, dropout)
    half = logits(model, fanouts, roots[::2][::-1], dropout).flip(0)
    assert (half - together[::2]).abs().max() < 1e-12
    for i in range(0, len(roots), 7):
        alone = logits(model, fanouts, roots[i : i + 1], dropout)
        assert (alone - together[i]).abs().max() < 1e-12


def gradients(model, loss):
    return [torch.zeros_like(p) if g is None else g for p, g in grads_of(model, loss)]


def grads_of(model, loss):
    parameters = list(model.parameters())
    return zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("dropout", [None, KEY])
@pytest.mark.parametrize("multilabel", [False, True])
def test_pieces_of_a_batch_add_up_to_its_gradient(name, layers, dropout, multilabel, graph, logits, model_config):
    model = build(model_config(name, norm="layer", residual=True, **DROPOUT), layers)
    rng = np.random.default_rng(layers)
    roots = rng.permutation(graph.vertices)[:40]
    labels = torch.from_numpy(rng.integers(0, CLASSES, graph.vertices))
    if multilabel:
        labels = torch.from_numpy(rng.choice([0, 1, np.nan], (graph.vertices, CLASSES), p=[0.4, 0.4, 0.2]))

    def gradient(piece):
        loss = weighted_loss(logits(model, (3, 2, 4)[:layers], piece, dropout), labels[piece], 1 / len(roots))
        return gradients(model, loss)

    whole = gradient(roots)
    cuts = [0, 0, 1, 4, 4, 23, 40, 40]
    pieces = [gradient(roots[a:b]) for a, b in itertools.pairwise(cuts)]
    for total, *parts in zip(whole, *pieces, strict=True):
        assert total.norm() > 0
        assert (sum(parts) - total).norm() < 1e-10 * total.norm()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dropout", [None, KEY])
def test_no_roots_and_lonely_roots(name, dropout, graph, logits, model_config, either_operations):
    model = build(model_config(name, norm="layer", residual=True, **DROPOUT), 2)
    nothing = logits(model, (3, 2), [], dropout)
    assert nothing.shape == (0, CLASSES)
    for _, grad in grads_of(model, weighted_loss(nothing, torch.empty(0, dtype=torch.int64), 0.1)):
        assert grad is not None
        assert not grad.any()
    lonely = [graph.vertices - 1, graph.vertices - 2]
    result = logits(model, (3, 2), lonely, dropout)
    assert torch.isfinite(result).all()
    assert all(torch.isfinite(g).all() for _, g in grads_of(model, result.sum()))


@pytest.mark.parametrize("name", NAMES)
def test_float32_follows_float64(name, graph, features, sampled, model_config):
    config = model_config(name, norm="layer", **DROPOUT)
    exact, single = (build_model(config, 2, WIDTH, CLASSES, 3, t) for t in (torch.float64, torch.float32))
    blocks, src = sampled(graph, (3, 2), range(30))
    result = single(blocks, features[src].float(), KEY)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), exact(blocks, features[src], KEY), rtol=1e-4, atol=1e-5)
    halved = features.half()
    assert torch.equal(single(blocks, halved[src]), single(blocks, halved.float()[src]))


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_change_bits(name, random_graph, sampled, model_config):
    graph = random_graph(1500, 12)
    x = torch.randn(graph.vertices, 70)
    model = build_model(model_config(name, hidden=64, heads=4, norm="layer", **DROPOUT), 2, 70, 7, 1)
    labels = torch.arange(1300) % 7

    def everything(threads):
        torch.set_num_threads(threads)
        set_threads(threads)
        blocks, src = sampled(graph, (8, 8), range(1300))
        result = model(blocks, x[src], KEY)
        return [result, *gradients(model, weighted_loss(result, labels, 1e-3))]

    pairs = list(zip(everything(1), everything(2), strict=True))
    set_threads(1)
    assert all(torch.equal(one, two) for one, two in pairs)


def test_the_first_layer_computes_no_gradient_of_its_input(logits, model_config, monkeypatch, set_order):
    from leapmpi.nn.kernels import csr

    model = build(model_config("sage"), 1)
    set_order(lambda layer, block, x: False)
    loss = logits(model, (3,), range(9)).sum()
    monkeypatch.setattr(csr, "weighted_sum", None)  # would fail if called
    loss.backward()


def test_side_is_chosen_by_cost(model_config, sampled, random_graph):
    layer = build_model(model_config("sage", hidden=2), 2, 4000, 3, 0).layers[0]
    blocks, _ = sampled(random_graph(), (-1,), range(60))
    assert projects_first(layer, blocks[0], torch.empty(60, 4000))  # as many destinations as sources, far narrower
    wide = build_model(model_config("sage", hidden=4000), 2, 2, 3, 0).layers[0]
    assert not projects_first(wide, blocks[0], torch.empty(60, 2))


def test_wrong_configs_are_explained(model_config, logits):
    with pytest.raises(ConfigError, match="did you mean 'sage'"):
        build_model(model_config("sagee"), 2, 5, 4, 0)
    with pytest.raises(ConfigError, match=r"model\.hidden \(8\) must be a multiple"):
        build_model(model_config("gat", heads=3), 2, 5, 4, 0)
    with pytest.raises(ConfigError, match="at least one layer"):
        build_model(model_config("sage"), 0, 5, 4, 0)
    with pytest.raises(ConfigError, match="0 classes"):
        build_model(model_config("sage"), 1, 5, 0, 0)
    with pytest.raises(ConfigError, match="2 layers but the fan-out is of 1 hop"):
        logits(build(model_config("sage"), 2), (3,), range(4))
    assert MODELS.names() == [
        "deepgcn",
        "embedding",
        "film",
        "gat",
        "gatv2",
        "gcn",
        "gin",
        "hgt",
        "rgat",
        "rgcn",
        "rsage",
        "sage",
        "simple-hgn",
    ]
