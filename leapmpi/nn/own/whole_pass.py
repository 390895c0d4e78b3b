"""A user's module run once over all vertices of a rank, in the form written for a whole graph.

Code between message passings runs for all vertices at once. A message passing itself goes to `combine`. It computes
the rows of all vertices from blocks with all in-neighbours, in chunks of its choice, with rows of remote sources.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn

from leapmpi.errors import ConfigError
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.own.passage import PLAIN, Mark, Passage
from leapmpi.nn.tensors import BlockTensors, Edges

RunOnBlock = Callable[[BlockTensors, Sequence[Tensor]], Tensor]
"""A function that computes rows of a block's destinations, from the tensors that a message passing reads of sources."""

Combine = Callable[[int, Sequence[Tensor], RunOnBlock], Tensor]
"""combine(k, rows, run): computes message passing k (from 0) for all vertices of this rank, which read `rows`."""

_CARRIED = ("edge_weight", "edge_attr")

_HARMLESS = [getattr(Tensor, name).__get__ for name in ("device", "dtype", "layout", "requires_grad", "is_cuda")]


class WholePassage(Passage):
    """A run of `forward` over all vertices of a rank; its graph has no edges and is only handed on."""

    def __init__(self, named: str, graph: BlockGraph, layers: int, vertices: Tensor) -> None:
        super().__init__([graph] * layers, vertices, None)
        self.named = named

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not self.inside and func not in _HARMLESS:
            edges = self.graphs[0].edge_index
            if any(each is edges for each in (*args, *(kwargs or {}).values())):
                raise ConfigError(
                    f"--model {self.named}: forward itself reads edge_index ({getattr(func, '__name__', func)}), so "
                    "that the module cannot be run layer by layer; hand edge_index on to modules that pass messages"
                )
        return super().__torch_function__(func, types, args, kwargs)


def run_layer_by_layer(model: OwnModel, x: Tensor, vertices: Tensor, like: BlockTensors, combine: Combine) -> Tensor:
    """Compute the logits float[n, out] of the vertices of this rank, whose rows are `x` (float[n, in]).

    vertices: int64[n], their original ids; `like` is a block, of any vertices, with the same data of edges as all.
    Raises ConfigError for a module that cannot be run layer by layer.
    """
    if model.block_wise:
        raise ConfigError(
            f"--model {model.named}: forward takes the graphs of all blocks ({model.block_wise}), so that it cannot be "
            "run layer by layer; write forward(x, edge_index)"
        )
    layers = len(model.layers)
    passage = WholePassage(model.named, BlockGraph(_without_edges(like, len(x)), x.dtype), layers, vertices)
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
    if given.get("edge_index") is not whole.edge_index:
        raise ConfigError(f"--model {model.named}: {what} gets an edge_index other than the one that forward was given")
    if passage.calls == len(passage.graphs):
        raise ConfigError(f"--model {model.named}: {what} is one message passing more than the run had layers")
    carried = {key: _name_of(whole, given[key], model, what) for key in _CARRIED if given.get(key) is not None}
    rows = [each for key, value in given.items() if key not in carried for each in _rows(passage, value)]

    def run(block: BlockTensors, of_sources: Sequence[Tensor]) -> Tensor:
        graph = BlockGraph(block, whole.dtype)
        inner = Passage([graph], block.src_original, None)
        taken = iter(of_sources)
        here = {key: _with_rows(passage, inner, value, taken) for key, value in given.items() if key not in carried}
        here |= {"edge_index": graph.edge_index, **{key: getattr(graph, name) for key, name in carried.items()}}
        call = inspect.BoundArguments(bound.signature, {key: here[key] for key in given})
        model.passings.passage = inner
        try:
            with inner:
                out = module(*call.args, **call.kwargs)
        finally:
            model.passings.end()
        if not isinstance(out, Tensor):
            raise ConfigError(f"--model {model.named}: {what} gives more than rows, so that it cannot be run in parts")
        return out

    # Modules nested in this one see that they run within a message passing.
    passage.inside += 1
    try:
        out = combine(passage.calls, rows, run)
    finally:
        passage.inside -= 1
    passage.calls += 1
    return passage.marked(out, Mark(passage.calls, PLAIN))


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
    if type(value) in (tuple, list):
        return [each for part in value for each in _rows(passage, part)]
    return [value] if _is_rows(passage, value) else []


def _with_rows(passage: Passage, inner: Passage, value: Any, taken: Iterator[Tensor]) -> Any:
    """Replace each tensor in `value` that holds a row for each vertex by the next of `taken`."""
    if type(value) in (tuple, list):
        return type(value)(_with_rows(passage, inner, part, taken) for part in value)
    return inner.marked(next(taken), Mark(0, PLAIN)) if _is_rows(passage, value) else value
