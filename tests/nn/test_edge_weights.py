"""Weights of edges in layers: dense formulas, independence of batches, and estimates of weighted sums and means."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.nn.model import build_model
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.edge_lookup import EdgeDataSampler, edge_numbers
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers import weighted
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.tasks import weighted_loss

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 5, 2, 7)
WIDTH, CLASSES = 5, 4


@pytest.fixture(scope="module")
def graph(random_graph):
    """Directed weights on an undirected graph, some of them 0."""
    plain = random_graph()
    weight = np.random.default_rng(4).integers(0, 6, plain.edges).astype(np.float32) / 4
    sums = np.array([weight[a:b].sum() for a, b in zip(plain.indptr, plain.indptr[1:], strict=False)], np.float64)
    return replace(plain, edge_weight=weight, weight_sum=sums)


@pytest.fixture(scope="module")
def features(graph):
    return torch.from_numpy(np.random.default_rng(1).standard_normal((graph.vertices, WIDTH)))


def adjacency(graph):
    a = torch.zeros(graph.vertices, graph.vertices, dtype=torch.float64)
    for v in range(graph.vertices):
        row = slice(graph.indptr[v], graph.indptr[v + 1])
        a[v, graph.indices[row]] = torch.from_numpy(graph.edge_weight[row]).double()
    return a


def dense(name, p, a, x, last):
    """gcn: symmetric normalisation of A + I with weights; sage: the weighted mean, 0 where all weights are."""
    if name == "gcn":
        a = a + torch.eye(len(a))
        scale = torch.diag(a.sum(1) ** -0.5)
        h = scale @ a @ scale @ x @ p["neighbour.weight"].T + p["bias"]
    else:
        total = a.sum(1, keepdim=True)
        mean = a @ x / torch.where(total > 0, total, 1)
        h = x @ p["own.weight"].T + mean @ p["neighbour.weight"].T + p["bias"]
    return h if last else h.relu()


def sampled(sampler, roots, key=KEY):
    blocks = EdgeDataSampler(sampler).sample(key, np.asarray(roots, np.int64))
    return [to_tensors(block) for block in blocks], blocks


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_all_neighbours_give_the_dense_formula(graph, features, model_config, name):
    model = build_model(model_config(name), 2, WIDTH, CLASSES, 3, torch.float64)
    roots = np.arange(graph.vertices)[::-1]
    tensors, blocks = sampled(NodeWiseSampler(graph, (-1, -1)), roots)
    x = features
    for number, layer in enumerate(model.layers):
        x = dense(name, dict(layer.named_parameters()), adjacency(graph), x, number == 1)
    torch.testing.assert_close(model(tensors, features[blocks[-1].src]), x[roots.copy()])


@pytest.mark.parametrize("name", ["gcn", "sage"])
@pytest.mark.parametrize("draws", ["node-wise", "degree", "edge"])
def test_batches_of_any_size_give_the_same_gradient(graph, features, model_config, name, draws):
    sampler = NodeWiseSampler(graph, (3, 2))
    if draws != "node-wise":
        sampler = weighted.Weighted(Setup(graph, (3, 2), np.empty(0, np.int64), 0), weighted.Options(draws))
    model = build_model(model_config(name), 2, WIDTH, CLASSES, 3, torch.float64)
    labels = torch.arange(graph.vertices) % CLASSES
    found = []
    for cut in (1, 7):
        model.zero_grad()
        for roots in np.array_split(np.arange(40), cut):
            tensors, blocks = sampled(sampler, roots)
            weighted_loss(model(tensors, features[blocks[-1].src]), labels[roots], 1 / 40).backward()
        found.append(torch.cat([each.grad.reshape(-1) for each in model.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("draws", ["node-wise", "degree", "edge"])
def test_sampled_sums_estimate_weighted_ones(graph, features, model_config, draws):
    """Over many draws, the mean of gcn's sums is the weighted sum over all in-neighbours."""
    sampler = NodeWiseSampler(graph, (3,))
    if draws != "node-wise":
        options = weighted.Options(draws, row_normalise=False)
        sampler = weighted.Weighted(Setup(graph, (3,), np.empty(0, np.int64), 0), options)
    layer = build_model(model_config("gcn"), 1, WIDTH, CLASSES, 3, torch.float64).layers[0]
    roots, count = np.arange(graph.vertices), 700
    total = torch.zeros(graph.vertices, CLASSES, dtype=torch.float64)
    for number in range(count):
        (block,), (drawn,) = sampled(sampler, roots, DrawKey(TRAIN, 1, 0, number))
        total += layer(block, features[drawn.src]).detach()
    wanted = dense("gcn", dict(layer.named_parameters()), adjacency(graph), features, True)
    assert (total / count - wanted).abs().max() < 0.25


def test_numbers_are_those_of_the_topology(graph):
    _, blocks = sampled(NodeWiseSampler(graph, (3, -1)), [5, 50, 3])
    for block in blocks:
        of_edge = np.repeat(block.dst, np.diff(block.indptr))
        assert (graph.indices[block.edge_numbers] == block.src[block.indices]).all()
        assert (block.edge_numbers >= graph.indptr[of_edge]).all()
        assert (block.edge_numbers < graph.indptr[of_edge + 1]).all()
        assert (block.edge_weight == graph.edge_weight[block.edge_numbers]).all()


def test_numbers_of_repeated_and_disordered_neighbours():
    topology = Topology(np.array([0, 3, 3, 3, 3]), np.array([3, 1, 2], np.int32), np.array([0, 20, 30, 10]))
    numbers = edge_numbers(topology, np.array([0, 4]), np.array([2, 3, 3, 1]), np.array([0]))
    assert numbers.tolist() == [2, 0, 0, 1]
    with pytest.raises(ConfigError, match=r"joins vertices 0 and 20 \(original ids\), which have no edge"):
        edge_numbers(topology, np.array([0, 1, 2]), np.array([2, 0]), np.array([0, 1]))


def dense_gat(p, edge, x, last):
    """`edge` float[n, n, 3]: the features of u -> v in [v, u], NaN without an edge; 0 from a vertex to itself."""
    heads, width = p["attend_source"].shape
    z = (x @ p["neighbour.weight"].T).view(len(x), heads, width)
    there = ~edge.isnan().any(2) | torch.eye(len(x), dtype=bool)
    e = edge.nan_to_num() @ p["edge"].T
    out = []
    for h in range(heads):
        score = (z[:, h] @ p["attend_target"][h])[:, None] + (z[:, h] @ p["attend_source"][h])[None, :]
        score = score + e.view(*there.shape, heads, width)[:, :, h] @ p["attend_edge"][h]
        share = torch.nn.functional.leaky_relu(score, 0.2).masked_fill(~there, -torch.inf).softmax(1)
        out.append(share @ z[:, h])
    if last:
        return sum(out) / heads + p["bias"]
    return torch.nn.functional.elu(torch.cat(out, 1) + p["bias"])


def test_features_of_edges_enter_attention_as_in_the_dense_formula(graph, features, model_config, either_operations):
    of_edges = torch.from_numpy(np.random.default_rng(8).standard_normal((graph.edges, 3)))
    dense_edges = torch.full((graph.vertices, graph.vertices, 3), torch.nan, dtype=torch.float64)
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    dense_edges[destination, graph.indices] = of_edges
    model = build_model(model_config("gat"), 2, WIDTH, CLASSES, 3, torch.float64, edge_dim=3)
    roots = np.arange(graph.vertices)
    tensors, blocks = sampled(NodeWiseSampler(graph, (-1, -1)), roots)
    tensors = [
        replace(each, edge_features=of_edges[torch.from_numpy(block.edge_numbers)])
        for each, block in zip(tensors, blocks, strict=True)
    ]
    x = features
    for number, layer in enumerate(model.layers):
        x = dense_gat(dict(layer.named_parameters()), dense_edges, x, number == 1)
    got = model(tensors, features[blocks[-1].src])
    torch.testing.assert_close(got, x)

    # Gradients of all parameters, those of the features' weights too.
    names, parameters = zip(*model.named_parameters(), strict=True)
    wanted = torch.autograd.grad(x.square().sum(), parameters)
    for name, a, b in zip(names, torch.autograd.grad(got.square().sum(), parameters), wanted, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


def test_a_model_that_reads_no_features_of_edges_gets_none(model_config):
    assert build_model(model_config("sage"), 1, WIDTH, CLASSES, 3, edge_dim=3).layers[0].edge_data == (
        "weight",
        "edge_weight",
    )


def test_draws_by_edge_weight_have_their_chances_and_count_alike(graph):
    """A hub's in-neighbours come with chances in proportion to their weights; those of weight 0 never."""
    degree = 20
    weight = np.array([0, *range(1, degree)], np.float32)
    topology = Topology(
        np.array([0, degree, *[degree] * degree]), np.arange(1, degree + 1, dtype=np.int32), np.arange(degree + 1),
        weight, np.array([weight.sum(), *[0.0] * degree]),
    )  # fmt: skip
    sampler = weighted.Weighted(Setup(topology, (5,), np.empty(0, np.int64), 0), weighted.Options("edge"))
    counts, draws = np.zeros(degree), 4000
    for number in range(draws):
        drawn = sampler.neighbours(DrawKey(TRAIN, 1, 0, number), 0, np.array([0]))
        assert len(drawn.neighbours) == 5
        counts[drawn.neighbours - 1] += 1
        np.testing.assert_allclose((drawn.weight * weight[drawn.neighbours - 1]).sum(), weight.sum(), rtol=1e-5)
    np.testing.assert_allclose(counts / draws, 5 * weight / weight.sum(), atol=0.03)
    plain = replace(topology, edge_weight=None)
    with pytest.raises(ConfigError, match="weights=edge: the dataset has no edge weights in use"):
        weighted.Weighted(Setup(plain, (5,), np.empty(0, np.int64), 0), weighted.Options("edge"))
