"""A user's module run once over all vertices of a rank, in the form written for a whole graph.

Code between message passings runs for all vertices at once. A message passing itself goes to `combine`. It computes
the rows of all vertices from blocks with all in-neighbours, in chunks of its choice, with rows of remote sources.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from leapmpi.errors import ConfigError
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.own.message_passing import ALL_EDGES, EDGES
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.own.passage import PLAIN, SEVERAL, Mark, Passage, marks_of
from leapmpi.nn.own.relation_graph import EdgeType, TypedBlockGraph
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.nn.typed_matrix import TypedMatrix

RowsByType = dict[int, Tensor]
"""Rows by the number of their type; PLAIN stands for the type of a plain graph."""

RunOnBlock = Callable[[BlockTensors, Sequence[Tensor]], RowsByType]
"""A function that computes rows of a block's destinations, from the tensors that a message passing reads of sources."""


@dataclass(frozen=True, eq=False)
class WholeCall:
    """One call of a module that passes messages, for all vertices of this rank.

    number: that of its block (from 0). rows: the tensors that it reads, with a row for each vertex of one of `kinds`,
    numbers of types. end: the type of its destinations, PLAIN in a plain graph, SEVERAL where all relations are read.
    """

    number: int
    rows: list[Tensor]
    kinds: list[int]
    end: int
    run: RunOnBlock


Combine = Callable[[WholeCall], RowsByType]
"""A function that computes the rows of all vertices of this rank that a call gives."""

_CARRIED = ("edge_weight", "edge_attr")

_HARMLESS = [getattr(Tensor, name).__get__ for name in ("device", "dtype", "layout", "requires_grad", "is_cuda")]


class WholePassage(Passage):
    """A run of `forward` over all vertices of a rank; its graph has no edges and is only handed on."""

    def __init__(
        self, named: str, graph: BlockGraph, layers: int, vertices: Tensor, kinds: Tensor | None = None
    ) -> None:
        super().__init__([graph] * layers, vertices, None, kinds)
        self.named = named
        of_relations = graph.edge_index_dict.values() if isinstance(graph, TypedBlockGraph) else [graph.edge_index]
        self._edges = {id(each) for each in of_relations}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = () if self.inside or func in _HARMLESS else (*args, *(kwargs or {}).values())
        if any(id(each) in self._edges for each in given):
            raise ConfigError(
                f"--model {self.named}: forward itself reads edge_index ({getattr(func, '__name__', func)}), so "
                "that the module cannot be run layer by layer; hand edge_index on to modules that pass messages"
            )
        return super().__torch_function__(func, types, args, kwargs)


def run_layer_by_layer(
    model: OwnModel, x: Tensor | TypedMatrix, vertices: Tensor, like: BlockTensors, combine: Combine
) -> Tensor:
    """Compute the logits float[n, out] of the vertices of this rank, whose rows are `x` (float[n, in]).

    In a typed graph they are those of the target type alone. vertices: int64[n], their original ids; `like` is a
    block, of any vertices, with the same data of edges as all. Raises ConfigError for a module that cannot be run layer
    by layer.
    """
    if model.block_wise:
        raise ConfigError(
            f"--model {model.named}: forward takes the graphs of all blocks ({model.block_wise}), so that it cannot be "
            "run layer by layer; write forward(x, edge_index)"
        )
    block, dtype, kinds = _without_edges(like, len(x)), next(model.module.parameters()).dtype, None
    graph = BlockGraph(block, dtype)
    if isinstance(x, TypedMatrix):
        assert model.schema is not None, "rows of types are those of a typed graph"
        kinds = x.types
        graph = TypedBlockGraph(block, dtype, model.schema.graph, kinds)
    passage = WholePassage(model.named, graph, len(model.layers), vertices, kinds)
    # The graph has no edges: `combine` does what modules would do with them, over all ranks.
    with _handed_over(model, passage, combine):
        return model.run(passage, x)


def _without_edges(like: BlockTensors, vertices: int) -> BlockTensors:
    """Make a block of so many vertices without edges, with empty data of edges of the same kinds as `like`."""
    indices = like.edges.indices[:0]
    weights = like.weights and replace(like.weights, edges=like.weights.edges[:0])
    features = None if like.edge_features is None else like.edge_features[:0]
    indptr = like.edges.indptr.new_zeros(vertices + 1)
    edges = Edges(indptr, indices, vertices)
    return replace(like, n_dst=vertices, edges=edges, weights=weights, edge_features=features)


@contextmanager
def _handed_over(model: OwnModel, passage: WholePassage, combine: Combine) -> Iterator[None]:
    """Replace calls of the modules that pass messages by `combine`, while the body runs."""
    found = model.passings.found
    for name, module in found.items():
        # The wrapper keeps the signature: arguments are recognised by it.
        module.forward = wraps(module.forward)(partial(_call, model, passage, combine, name, module, module.forward))
    try:
        yield
    finally:
        for module in found.values():
            del module.forward


def _call(
    model: OwnModel,
    passage: WholePassage,
    combine: Combine,
    name: str,
    module: nn.Module,
    forward: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Return the result of a call of `module`; this stands for its own `forward`."""
    # Inside another message passing, or on a block, the module's own forward runs.
    if passage.inside:
        return forward(*args, **kwargs)
    # Rows are found among the arguments by name, so that any signature works.
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given, what, whole = bound.arguments, f"{name} ({type(module).__name__})", passage.graphs[0]
    edges = _edges_of(passage, given, model, what)
    if passage.typed:
        # Modules of several relations belong to one layer, that of the rows which they read.
        passage.calls = max((mark.level for mark in marks_of(given)), default=0)
    if passage.calls == len(passage.graphs):
        raise ConfigError(f"--model {model.named}: {what} is one message passing more than the run had layers")
    carried = {key: _name_of(whole, given[key], model, what) for key in _CARRIED if given.get(key) is not None}
    of_edges = {EDGES, ALL_EDGES, *carried}
    rows = [each for key, value in given.items() if key not in of_edges for each in _rows(passage, value)]

    def run(block: BlockTensors, of_sources: Sequence[Tensor]) -> RowsByType:
        inner, graph = _on_block(model, block, whole.dtype)
        taken = iter(of_sources)
        here = {key: _with_rows(passage, inner, value, taken) for key, value in given.items() if key not in of_edges}
        here |= {edges.argument: edges.of(graph), **{key: getattr(graph, name) for key, name in carried.items()}}
        call = inspect.BoundArguments(bound.signature, {key: here[key] for key in given})
        model.passings.passage = inner
        try:
            with inner:
                out = module(*call.args, **call.kwargs)
        finally:
            model.passings.end()
        found = {edges.end: out} if edges.end != SEVERAL else _by_number(passage, out)
        if not all(isinstance(each, Tensor) for each in found.values()):
            raise ConfigError(f"--model {model.named}: {what} gives more than rows, so that it cannot be run in parts")
        return found

    # Modules nested in this one see that they run within a message passing.
    passage.inside += 1
    try:
        kinds = [mark.kind for each in rows for mark in marks_of([each])]
        out = combine(WholeCall(passage.calls, rows, kinds, edges.end, run))
    finally:
        passage.inside -= 1
    passage.calls += 1
    for kind, each in out.items():
        passage.marked(each, Mark(passage.calls, kind))
    if edges.end != SEVERAL:
        return out[edges.end]
    assert isinstance(whole, TypedBlockGraph), "relations are those of a typed graph"
    return {whole.names[kind]: each for kind, each in out.items()}


@dataclass(frozen=True, eq=False)
class _EdgesOfCall:
    """The edges that a call is given: its `argument`, the `relations` that it reads, and `end` as in WholeCall."""

    argument: str
    relations: tuple[EdgeType, ...]
    end: int

    def of(self, graph: BlockGraph) -> Any:
        """Return the same edges of a block's `graph`."""
        if not isinstance(graph, TypedBlockGraph):
            return graph.edge_index
        found = {name: graph.edge_index_dict[name] for name in self.relations}
        return found if self.argument == ALL_EDGES else found[self.relations[0]]


def _edges_of(passage: WholePassage, given: dict[str, Any], model: OwnModel, what: str) -> _EdgesOfCall:
    """Find the edges among the arguments `given`. Raises ConfigError for edges that forward was not given."""
    whole = passage.graphs[0]
    if not isinstance(whole, TypedBlockGraph):
        if given.get(EDGES) is whole.edge_index:
            return _EdgesOfCall(EDGES, (), PLAIN)
    else:
        names = {id(each): name for name, each in whole.edge_index_dict.items()}
        argument = ALL_EDGES if ALL_EDGES in given else EDGES
        edges = given[ALL_EDGES].values() if argument == ALL_EDGES else [given.get(EDGES)]
        found = tuple(names[id(each)] for each in edges if id(each) in names)
        if len(found) == len(edges):
            return _EdgesOfCall(
                argument, found, SEVERAL if argument == ALL_EDGES else whole.relations[found[0]].kinds[1]
            )
    raise ConfigError(f"--model {model.named}: {what} gets an edge_index other than the one that forward was given")


def _on_block(model: OwnModel, block: BlockTensors, dtype: torch.dtype) -> tuple[Passage, BlockGraph]:
    """Make the passage of a call on `block`, and the graph of the block."""
    if model.schema is None:
        graph = BlockGraph(block, dtype)
        return Passage([graph], block.src_original, None), graph
    kinds = model.schema.types_of(block.src_original)
    of_types = TypedBlockGraph(block, dtype, model.schema.graph, kinds)
    return Passage([of_types], block.src_original, None, kinds), of_types


def _by_number(passage: Passage, out: Any) -> dict[int, Any]:
    """Return what a module of all relations gives, by number of type; types without rows are left out."""
    if not isinstance(out, dict):
        return {SEVERAL: None}
    return {passage.kind_of(name): each for name, each in out.items() if each is not None}


def _name_of(graph: BlockGraph, value: Any, model: OwnModel, what: str) -> str:
    """Name the attribute of `graph` that `value` is: edge_weight or edge_attr. Raises ConfigError for anything else."""
    for name in _CARRIED:
        if value is getattr(graph, name):
            return name
    raise ConfigError(
        f"--model {model.named}: {what} gets values of edges other than those that forward was given; hand them on as "
        "they are"
    )


def _is_rows(passage: Passage, value: Any) -> bool:
    return isinstance(value, Tensor) and passage.holds_rows(value)


def _rows(passage: Passage, value: Any) -> list[Tensor]:
    """Return the tensors in `value`, an argument, that hold a row for each vertex."""
    if isinstance(value, dict):
        value = list(value.values())
    if type(value) in (tuple, list):
        return [each for part in value for each in _rows(passage, part)]
    return [value] if _is_rows(passage, value) else []


def _with_rows(passage: Passage, inner: Passage, value: Any, taken: Iterator[Tensor]) -> Any:
    """Replace each tensor in `value` that holds a row for each vertex by the next of `taken`."""
    if isinstance(value, dict):
        return {name: _with_rows(passage, inner, part, taken) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_with_rows(passage, inner, part, taken) for part in value)
    if not _is_rows(passage, value):
        return value
    (mark,) = marks_of([value])
    return inner.marked(next(taken), Mark(0, mark.kind))
