"""Models whose messages are not linear in rows, and heads over all layers, against dense formulas."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
from leapmpi.nn.messages import modulated_sum, pair_scores, softmax_mean
from leapmpi.nn.model import build_model, canonical, settings_without_effect
from leapmpi.nn.models.deepgcn import EPSILON, MOST
from leapmpi.nn.tensors import Edges, to_tensors
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.worker_threads import set_threads

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 5, 2, 7)
CLASSES, WIDTH = 4, 5
DROPOUT = {"dropout": 0.4, "input_dropout": 0.3, "attention_dropout": 0.3}

KINDS = {
    "deepgcn": {"name": "deepgcn"},
    "deepgcn softmax": {"name": "deepgcn", "aggregate": "softmax", "learn_scalars": True, "mlp_layers": 2},
    "deepgcn power": {"name": "deepgcn", "aggregate": "power", "temperature": 2.0, "learn_scalars": True},
    "deepgcn mean": {"name": "deepgcn", "aggregate": "mean", "message_norm": True, "learn_scalars": True},
    "deepgcn max": {"name": "deepgcn", "aggregate": "max", "norm": "none", "jumping": "cat"},
    "film": {"name": "film"},
    "film mean": {"name": "film", "aggregate": "mean", "norm": "none", "residual": True, "jumping": "cat"},
    "gin": {"name": "gin", "learn_scalars": True, "norm": "layer"},
    "gin deep": {"name": "gin", "mlp_layers": 3, "residual": True, "jumping": "max"},
    "gatv2": {"name": "gatv2"},
    "gatv2 norm": {"name": "gatv2", "norm": "layer", "residual": True, "jumping": "cat"},
    "deepgcn sum": {"name": "deepgcn", "aggregate": "sum", "mlp_layers": 3, "jumping": "max"},
}


@pytest.fixture(scope="module")
def graph(random_graph):
    return random_graph()


@pytest.fixture(scope="module")
def features(graph):
    return torch.from_numpy(np.random.default_rng(1).standard_normal((graph.vertices, WIDTH)))


def build(config, layers, dtype=torch.float64, edge_dim=0):
    """The model, its constant parameters moved a little, so that mistakes show."""
    model = build_model(config, layers, WIDTH, CLASSES, 3, dtype, edge_dim)
    generator = torch.Generator().manual_seed(0)
    for _, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=dtype)
    return model


def adjacency(graph):
    a = torch.zeros(graph.vertices, graph.vertices, dtype=torch.float64)
    for v in range(graph.vertices):
        a[v, graph.indices[graph.indptr[v] : graph.indptr[v + 1]]] = 1
    return a


def normalised(x, p, name):
    """Layer normalisation, if the parameters `p` hold one called `name`."""
    if f"{name}.gain" not in p:
        return x
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    return x * p[f"{name}.gain"] + p[f"{name}.bias"]


def dense_mlp(p, x):
    x = x @ p["mlp.products.0.weight"].T
    for number in itertools.count():
        if f"mlp.biases.{number}" not in p:
            return x + p["bias"]
        x = normalised(x + p[f"mlp.biases.{number}"], p, f"mlp.norms.{number}").relu()
        x = x @ p[f"mlp.products.{number + 1}.weight"].T


def of_edges(p, edge):
    """What features `edge` float[n, n, Fe] of u -> v in [v, u] add to rows, by the parameters `p`; 0 without any."""
    return 0 if edge is None else edge @ p["edge.weight"].T + p["edge_bias"]


def dense_messages(layer, p, a, weight, x, edge):
    """GENConv's aggregate of rows x: one row per destination, 0 without in-neighbours."""
    each = (x.expand(len(a), *x.shape) + of_edges(p, edge)).relu() + 1e-7  # [destination, source, channel]
    edge, degree = (a * weight).unsqueeze(2), a.sum(1, keepdim=True).clamp(min=1)
    t = p.get("temperature", 0.1 if layer.kind == "softmax_sg" else 1.0)
    if layer.kind in ("softmax", "softmax_sg"):
        share = (t * each).exp() * edge
        share = share / share.sum(1, keepdim=True).clamp(min=1e-300)
        return ((share.detach() if layer.kind == "softmax_sg" else share) * each).sum(1)
    if layer.kind == "power":
        means = (edge * each.clamp(1e-7, 10) ** t).sum(1) / degree
        return torch.where(a.sum(1, keepdim=True) > 0, means.clamp(1e-7, 10) ** (1 / t), 0)
    if layer.kind == "max":
        largest = each.masked_fill((a == 0).unsqueeze(2), -torch.inf).amax(1)
        return torch.where(a.sum(1, keepdim=True) > 0, largest, 0)
    return (edge * each).sum(1) / (degree if layer.kind == "mean" else 1)


def dense_deepgcn(layer, p, a, weight, h, edge=None):
    first = "encoder.weight" in p
    x = h @ p["encoder.weight"].T + p["encoder_bias"] if first else normalised(h, p, "norm").relu()
    combined = dense_messages(layer, p, a, weight, x, edge)
    if "scale" in p:
        # A little is added, so that the root of 0 has a gradient.
        length, norm = ((each.square().sum(1, keepdim=True) + 1e-300).sqrt() for each in (x, combined))
        combined = p["scale"] * length * combined / norm.clamp(min=1e-12)
    out = dense_mlp(p, x + combined)
    return out if first else h + out


def dense_film(layer, p, a, weight, h):
    width = len(p["bias"])

    def modulated(edge, rows, film):
        gamma, beta = (h @ p[f"{film}.weight"].T).split(width, dim=1)
        return (edge.unsqueeze(2) * (gamma.unsqueeze(1) * (h @ p[f"{rows}.weight"].T) + beta.unsqueeze(1)).relu()).sum(
            1
        )

    edge = a * weight / (a.sum(1, keepdim=True).clamp(min=1) if layer.by_mean else 1)
    out = modulated(edge, "neighbour", "film") + modulated(torch.eye(len(a), dtype=a.dtype), "own", "own_film")
    if "output_norm.gain" in p:
        out = normalised(out, p | {"output_norm.bias": torch.zeros(width)}, "output_norm")
    return out + p["bias"]


def dense_gin(layer, p, a, weight, h, edge=None):
    h = normalised(h, p, "norm")
    each = h.expand(len(a), *h.shape)
    each = each if edge is None else (each + of_edges(p, edge)).relu()
    out = dense_mlp(p, (1 + p.get("eps", 0)) * h + ((a * weight).unsqueeze(2) * each).sum(1))
    return out if layer.last else out.relu()


def dense_gatv2(layer, p, a, weight, h, edge=None):
    h, (heads, width) = normalised(h, p, "norm"), p["attend"].shape
    source, target = ((h @ p[f"{name}.weight"].T).view(len(h), heads, width) for name in ("neighbour", "target"))
    both = source.unsqueeze(0) + target.unsqueeze(1)
    if edge is not None:
        both = both + (edge @ p["edge"].T).view_as(both)
    score = (F.leaky_relu(both, 0.2) * p["attend"]).sum(3)
    share = score.exp() * (a * weight + torch.eye(len(a))).unsqueeze(2)
    out = torch.einsum("vuh,uhc->vhc", share / share.sum(1, keepdim=True), source)
    return out.mean(1) + p["bias"] if layer.last else F.elu(out.flatten(1) + p["bias"])


DENSE = {"deepgcn": dense_deepgcn, "film": dense_film, "gin": dense_gin, "gatv2": dense_gatv2}


def dense_model(name, model, a, x, weight=1.0, **edge):
    rows = []
    for layer in model.layers:
        p, given = dict(layer.named_parameters()), x
        x = DENSE[name](layer, p, a, weight, x, **edge)
        if layer.residual is not None:
            x = x + (given @ p["residual.weight"].T if "residual.weight" in p else given)
        rows.append(x)
    if model.head is None:
        return x
    p = dict(model.head.named_parameters())
    x = {"none": lambda: x, "cat": lambda: torch.cat(rows, 1), "max": lambda: torch.stack(rows).amax(0)}[
        model.head.jumping
    ]()
    if name == "deepgcn":
        x = normalised(x, p, "norm").relu()
    return x @ p["output.weight"].T + p["bias"]


def assert_same(model, result, expected):
    """Outputs, and gradients of every parameter."""
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-11)
    sums = [((each - 0.3) ** 2).sum() for each in (result, expected)]
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(each, parameters) for each in sums)
    for name, got, wanted in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_all_neighbours_give_the_dense_formula(kind, layers, graph, features, sampled, model_config, either_operations):
    config = model_config(**({"norm": "auto"} | KINDS[kind]))
    model = build(config, layers)
    roots = np.random.default_rng(2).permutation(graph.vertices)[:25]
    blocks, src = sampled(graph, (-1,) * layers, roots)
    assert_same(model, model(blocks, features[src]), dense_model(config.name, model, adjacency(graph), features)[roots])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "max" not in kind.split()])
def test_weighted_edges_give_the_dense_formula_with_weights(kind, graph, features, sampled, model_config):
    config = model_config(**({"norm": "auto"} | KINDS[kind]))
    model, a = build(config, 2), adjacency(graph)
    weight = torch.from_numpy(np.random.default_rng(3).uniform(0.2, 3, a.shape).astype(np.float32))
    blocks, src = sampled(graph, (-1, -1), np.arange(40))
    ids, weighted = torch.from_numpy(src), []
    for block in blocks:
        rows = ids[: block.n_dst].repeat_interleave(block.edges.counts)
        weighted.append(replace(block, weight=weight[rows, ids[block.edges.indices.long()]]))
    assert_same(
        model, model(weighted, features[src]), dense_model(config.name, model, a, features, weight.double())[:40]
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "film" not in kind])
def test_features_of_edges_give_the_dense_formula(kind, graph, features, model_config, either_operations):
    """All roots together, and one alone; a sampler's weights, of which a maximum takes none, count as they did."""
    config = model_config(**({"norm": "auto"} | KINDS[kind]))
    model, a, generator = build(config, 2, edge_dim=3), adjacency(graph), np.random.default_rng(8)
    edge = torch.from_numpy(generator.standard_normal((*a.shape, 3))) * a.unsqueeze(2)
    weight = torch.from_numpy(generator.uniform(0.2, 3, a.shape)).float()
    weighs = "max" not in kind.split()

    def carrying(roots):
        blocks = NodeWiseSampler(graph, (-1, -1)).sample(KEY, np.asarray(roots))
        return [with_edges(block) for block in blocks], blocks[-1].src

    def with_edges(block):
        place = np.repeat(block.dst, np.diff(block.indptr)), block.src[block.indices]
        return replace(to_tensors(block), edge_features=edge[place], weight=weight[place] if weighs else None)

    blocks, src = carrying(np.arange(30))
    together = model(blocks, features[src])
    assert_same(model, together, dense_model(config.name, model, a, features, weight.double(), edge=edge)[:30])
    blocks, src = carrying([7])
    torch.testing.assert_close(model(blocks, features[src])[0], together[7], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_root_does_not_notice_its_company(kind, graph, features, sampled, model_config):
    model = build(model_config(**({"norm": "auto"} | KINDS[kind] | DROPOUT)), 3)

    def logits(roots):
        blocks, src = sampled(graph, (3, 2, 4), roots)
        return model(blocks, features[src], KEY)

    roots = np.random.default_rng(4).permutation(graph.vertices)
    together = logits(roots)
    assert logits([]).shape == (0, CLASSES)
    for i in range(0, len(roots), 9):
        torch.testing.assert_close(logits(roots[i : i + 1])[0], together[i], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_change_bits_and_float32_follows_float64(kind, random_graph, sampled, model_config):
    graph = random_graph(800, 12)
    x = torch.randn(graph.vertices, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    config = model_config(**({"hidden": 64, "heads": 4, "norm": "auto"} | KINDS[kind] | DROPOUT))
    single, double = (build_model(config, 2, 20, 7, 1, dtype) for dtype in (torch.float32, torch.float64))
    blocks, src = sampled(graph, (8, 8), range(750))

    def everything(threads):
        torch.set_num_threads(threads)
        set_threads(threads)
        fresh = [replace(each, edges=Edges(each.edges.indptr, each.edges.indices, each.n_src)) for each in blocks]
        result = single(fresh, x[src].float(), KEY)
        return [result, *torch.autograd.grad(result.square().sum(), list(single.parameters()))]

    pairs = list(zip(everything(1), everything(2), strict=True))
    set_threads(1)
    assert all(torch.equal(one, two) for one, two in pairs)
    torch.testing.assert_close(pairs[0][0].double(), double(blocks, x[src], KEY), rtol=1e-3, atol=1e-4)


def random_edges(sources=9, counts=(3, 0, 4, 1, 5)):
    rng = np.random.default_rng(0)
    chosen = [np.sort(rng.choice(sources, count, replace=False)) for count in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Edges(torch.from_numpy(indptr), torch.from_numpy(np.concatenate(chosen).astype(np.int32)), sources)


def random(*shape, grad=True, seed=1):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_(grad)


def test_gradients_by_finite_differences(either_operations):
    edges = random_edges()
    weight = random(13, grad=False).abs() + 0.1
    t, z = torch.tensor([1.5], dtype=torch.float64, requires_grad=True), random(9, 4)
    full = edges.counts > 0
    assert gradcheck(lambda z, t: tuple(each[full] for each in softmax_mean(edges, z, t, weight)), (z, t))
    assert gradcheck(lambda z, t: softmax_mean(edges, z, t)[1], (z, t))
    assert gradcheck(lambda z, g, b: modulated_sum(edges, z, g, b, weight), (z, random(5, 4), random(5, 4, seed=2)))
    assert gradcheck(lambda s, t, a: pair_scores(edges, s, t, a, 0.2), (z, random(5, 4), random(2, 2)))


def test_a_softmax_of_large_values_does_not_overflow(either_operations):
    edges, z = random_edges(), random(9, 4, grad=False) * 1e4
    t = torch.ones(1, dtype=torch.float64)
    logs, mean = softmax_mean(edges, z, t)
    for i in range(5):
        rows = z[edges.indices[edges.indptr[i] : edges.indptr[i + 1]].long()]
        torch.testing.assert_close(mean[i], (rows.softmax(0) * rows).sum(0))
        torch.testing.assert_close(logs[i], rows.logsumexp(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [EPSILON, MOST])
def test_gradients_of_a_power_mean_do_not_depend_on_how_means_are_rounded(bound, dtype, model_config):
    """Where all messages are at a bound, so is their mean, but for the order in which ranks add them up."""
    layer = build_model(model_config("deepgcn", aggregate="power", learn_scalars=True), 2, 5, 4, 0).layers[0]
    found = []
    for ulps in (-3, 0, 3):
        means = torch.full((1, layer.out_dim), bound * (1 + ulps * torch.finfo(dtype).eps), dtype=dtype)
        means.requires_grad_()
        root = layer.root(means, torch.ones(1, dtype=torch.int64))
        found.append(
            torch.cat([each.reshape(-1) for each in torch.autograd.grad(root.sum(), [means, layer.temperature])])
        )
    assert torch.allclose(found[0], found[1], rtol=1e-4)
    assert torch.allclose(found[2], found[1], rtol=1e-4)


def test_what_a_model_has_not_is_refused_in_a_sentence(model_config, graph, features, sampled):
    with pytest.raises(ConfigError, match=r"model.options: aggregate: unknown value 'power'"):
        build_model(model_config("sage", aggregate="power"), 2, 5, 4, 0)
    (block,), src = sampled(graph, (3,), [0, 1])
    weighted = replace(block, weight=torch.ones(len(block.edges.indices)))
    with pytest.raises(ConfigError, match="a maximum has no use"):
        build(model_config("deepgcn", aggregate="max"), 1)([weighted], features[src])


@pytest.mark.parametrize("jumping", ["cat", "max"])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_any_stack_may_combine_all_layers(name, jumping, graph, features, sampled, model_config):
    model = build(model_config(name, jumping=jumping), 3)
    blocks, src = sampled(graph, (3, 2, 4), range(20))
    rows, h = [], features[src]
    for layer, block in zip(model.layers, reversed(blocks), strict=True):
        h = layer(block, h)
        rows.append(h[:20])
    combined = torch.cat(rows, 1) if jumping == "cat" else torch.maximum(torch.maximum(*rows[:2]), rows[2])
    expected = F.linear(combined, model.head.output.weight, model.head.bias)
    torch.testing.assert_close(model(blocks, features[src]), expected)
    middle = model.layers[1](blocks[1], model.layers[0](blocks[2], features[src]))
    torch.testing.assert_close(model.after(1, blocks[:1], middle, below=rows[:1]), expected)


def without_effect(name, *options):
    config = Config.from_values({"data": "x", "model.name": name, "model.options": options})
    return settings_without_effect([config])


def test_settings_that_a_model_does_not_read_are_known():
    assert "temperature" in without_effect("deepgcn", "aggregate=mean")
    assert "learn-scalars" in without_effect("deepgcn")
    assert not {"temperature", "learn-scalars"} & without_effect("deepgcn", "aggregate=power").keys()
    assert without_effect("deepgcn")["residual"] == "layers of deepgcn have residuals of their own"


@pytest.mark.parametrize(
    ("name", "options", "norm"),
    [
        ("sage", ["aggregate=mean"], "none"),
        ("gat", ["heads=4", "attention-dropout=0.0"], "none"),
        ("film", ["aggregate=sum"], "layer"),
    ],
)
def test_runs_are_compared_by_all_options_and_what_auto_stands_for(name, options, norm):
    values = {"model.name": name, "model.options": [], "model.norm": "auto"}
    found = {"model.name": name, "model.options": options, "model.norm": norm}
    assert canonical(values) == canonical(found) == found
    assert canonical(values | {"model.options": options[:1]}) == found
