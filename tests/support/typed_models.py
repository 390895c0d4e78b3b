"""A typed graph whose schema has every kind of type and relation, its blocks, and dense formulas of typed layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType, reached
from leapmpi.exchange.named_edges import sums_by_relation
from leapmpi.nn.model import build_model
from leapmpi.nn.tensors import Edges, PartialBlock
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.nn.typed_schema import TypedSchema
from leapmpi.sampling.block import Block, indptr_of
from tests.support.typed_graphs import typed_graph

SCHEMA = GraphTypes(
    (
        VertexType("paper", 40, 5, "float32"),
        VertexType("author", 30),
        VertexType("field", 12, 3, "float16"),
        VertexType("venue", 6, 4, "float32"),
        VertexType("shelf", 5),
    ),
    (
        Relation("author", "writes", "paper"),
        Relation("paper", "cites", "paper"),
        Relation("paper", "rev_writes", "author", 0),
        Relation("author", "reviews", "paper"),
        Relation("field", "topic", "paper"),
        Relation("venue", "hosts", "field"),
        Relation("author", "never", "paper"),
        Relation("paper", "stands_on", "shelf"),
    ),
    "paper",
)
"""A featureless type (author); a type without in-edges, only a source (venue); a relation from a type to itself; two
relations between the same types; a relation without edges (never); a type and a relation that paper never reaches."""

EMPTY, PRUNED = 6, 7
"""Numbers of the relation without edges, and of the one that is pruned."""

LEARNED = 4


def whole_graph(seed: int = 0, edges: int = 90) -> Graph:
    """Make a random graph of SCHEMA without edges of the empty relation."""
    graph = typed_graph(SCHEMA, edges=edges, seed=seed)
    kept = graph.edge_data.relation != EMPTY
    of_edge = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    return replace(
        graph,
        indptr=indptr_of(np.bincount(of_edge[kept], minlength=graph.vertices)),
        indices=graph.indices[kept],
        edge_data=replace(graph.edge_data, relation=graph.edge_data.relation[kept]),
    )


def schema(hops: int, learned: int = LEARNED, target: int = 0) -> TypedSchema:
    """Return what a model of `hops` layers for the type `target` reads; featureless types have `learned` columns."""
    found = reached(SCHEMA, [target], hops)
    columns = np.array([0 if each.feature_dim else learned for each in SCHEMA.vertices])
    return TypedSchema.of(SCHEMA, found, columns * found.types[-1])


def built(config, layers: int, hidden: int, classes: int, dtype: torch.dtype, moved=lambda name: True):
    """The model of `config` on the typed graph, with `moved` parameters (by name) away from their initial values."""
    model = build_model(config, layers, hidden, classes, 3, dtype, schema=schema(layers))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if moved(name):
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def all_rows(graph: Graph, width: int, learned: torch.Tensor, dtype: torch.dtype = torch.float64) -> TypedMatrix:
    """Return the input rows of all vertices; `learned` are those of the featureless types, one after the other."""
    rows = graph.typed
    types = rows.types_of(np.arange(graph.vertices))
    places = np.arange(graph.vertices) - rows.offsets[types]
    lacking = np.array([each is None for each in rows.features])
    sizes = np.where(lacking, np.diff(rows.offsets), 0)
    learned_places = places + (np.cumsum(sizes) - sizes)[types]
    features = [None if each is None else torch.from_numpy(each.astype(np.float64)).to(dtype) for each in rows.features]
    numbers = (torch.from_numpy(each) for each in (types, places, learned_places))
    return TypedMatrix(width, features, learned, *numbers)


def drawn_blocks(graph: Graph, roots: np.ndarray, hops: int, most: int = 3, seed: int = 0) -> list[Block]:
    """Draw up to `most` in-neighbours of each relation that is reached, from the root outward."""
    random, blocks, frontier = np.random.default_rng(seed), [], np.asarray(roots, np.int64)
    relations = reached(SCHEMA, [0], hops).relations
    for hop in range(hops):
        neighbours, relation, counts = [], [], []
        for v in frontier:
            edges = np.arange(graph.indptr[v], graph.indptr[v + 1])
            count = 0
            for r in np.flatnonzero(relations[hop]):
                chosen = edges[graph.edge_data.relation[edges] == r]
                chosen = np.sort(random.permutation(chosen)[:most])
                neighbours.append(graph.indices[chosen])
                relation.append(np.full(len(chosen), r, np.uint8))
                count += len(chosen)
            counts.append(count)
        ids = np.concatenate([*neighbours, np.empty(0, np.int64)]).astype(np.int64)
        new = [u for u in dict.fromkeys(ids.tolist()) if u not in set(frontier.tolist())]
        src = np.concatenate([frontier, np.array(new, np.int64)])
        place = {u: i for i, u in enumerate(src.tolist())}
        indices = np.array([place[u] for u in ids.tolist()], np.int32)
        described = src, indptr_of(np.array(counts, np.int64)), indices, graph.original_id[src]
        degree = np.diff(graph.indptr)[src]
        of_edges = np.concatenate([*relation, np.empty(0, np.uint8)])
        blocks.append(Block(hop, len(frontier), *described, degree, relation=of_edges))
        frontier = src
    return blocks


def dense_layer(layer, block: Block, h: torch.Tensor, types: np.ndarray, weights: torch.Tensor) -> torch.Tensor:
    """Compute a layer from rows `h` of all sources by its formula, relation by relation and vertex by vertex."""
    out = []
    read = layer.types
    relation_of = {r: k for k, r in enumerate(read.relations.tolist())}
    for i in range(block.n_dst):
        t = int(types[block.src[i]])
        d = read.destinations.tolist().index(t)
        total = layer.own[d] @ h[i] + layer.bias[d]
        edges = np.arange(block.indptr[i], block.indptr[i + 1])
        for r, k in relation_of.items():
            mine = edges[block.relation[edges] == r]
            if len(mine):
                mean = h[block.indices[mine].tolist()].mean(0)
                ending = sum(1 for each in read.relations if SCHEMA.ends[each, 1] == t)
                total = total + weights[k] @ mean / (ending if layer.options.relations == "mean" else 1)
        out.append(total)
    found = torch.stack(out) if out else h.new_zeros(0, layer.out_dim)
    return found if layer.last else found.relu()


def dense_inputs(model, graph: Graph, rows: TypedMatrix) -> torch.Tensor:
    """Compute rows of all vertices after the input layer, one by one; zeros of types that it does not read."""
    layer, out = model.layers[0].inputs, []
    for v in range(graph.vertices):
        t = int(rows.types[v])
        z = torch.zeros(layer.width, dtype=rows.dtype)
        if (weight := getattr(layer, f"features_{t}", None)) is not None:
            z = z + weight @ rows.features[t][int(rows.places[v])]
        if (weight := getattr(layer, f"learned_{t}", None)) is not None:
            z = z + weight @ rows.learned[int(rows.learned_places[v])]
        out.append(z)
    return torch.stack(out)


def dense_norm(layer, block: Block, h: torch.Tensor, types: np.ndarray) -> torch.Tensor:
    """Normalise rows `h` of all sources with gain and bias of their type, where the layer has a norm."""
    if layer.norm is None:
        return h
    h = (h - h.mean(1, keepdim=True)) / (h.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    place = [layer.types.sources.tolist().index(types[v]) for v in block.src]
    return h * layer.norm.gain[place] + layer.norm.bias[place]


def gradients(model, rows: TypedMatrix) -> dict[str, torch.Tensor]:
    """Return the gradients of all parameters and of the learned rows, zeros where there is none, and clear them."""
    every = {**dict(model.named_parameters()), "learned": rows.learned}
    found = {name: torch.zeros_like(each) if each.grad is None else each.grad for name, each in every.items()}
    for each in every.values():
        each.grad = None
    return found


def assert_same_gradients(model, rows: TypedMatrix, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Check that the squares of both outputs have the same gradients."""
    found.square().sum().backward()
    mine = gradients(model, rows)
    wanted.square().sum().backward()
    for each, gradient in gradients(model, rows).items():
        torch.testing.assert_close(
            mine[each], gradient, rtol=1e-10, atol=1e-12, msg=lambda said, name=each: f"{name}: {said}"
        )
    assert mine["learned"].abs().sum() > 0


def owned(block: Block, mine: np.ndarray, rows: TypedMatrix) -> tuple[PartialBlock, TypedMatrix]:
    """Return the partial block of the sources `mine` (bool[n_src]) of `block`, and their rows."""
    kept = mine[block.indices]
    number = np.cumsum(mine) - 1
    of_edge = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(of_edge[kept], minlength=block.n_dst))))
    sums = sums_by_relation(block.indptr, block.relation, None)
    local = np.flatnonzero(mine[: block.n_dst])
    tensor = torch.from_numpy
    partial = PartialBlock(
        edges=Edges(tensor(indptr), tensor(number[block.indices[kept]].astype(np.int32)), int(mine.sum())),
        sampled=tensor(np.diff(block.indptr)),
        dst_degree=tensor(block.dst_degree),
        src_original=tensor(block.src_original[mine]),
        src_degree=tensor(block.src_degree[mine]),
        local=(tensor(local), tensor(number[local])),
        relation=tensor(block.relation[kept]),
        relation_sum=tensor(sums[kept]),
    )
    return partial, rows[block.src[mine]]
