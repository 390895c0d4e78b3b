"""The modules of a user's model that pass messages: call k runs on block k.

Such a module is a MessagePassing of PyTorch Geometric, or the innermost one whose `forward` takes an `edge_index`. It
gets `(x, x[:n_dst])` where it takes pairs of sources and destinations. Where it takes one tensor, it runs on the
sources as a square graph with the block's edges, and the rows of the destinations are kept.

In a typed graph such a module has the edges of one relation, `edge_index_dict[relation]`, or takes the whole
`edge_index_dict`. Modules of one layer read rows of the same level, and so the same block.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import Any

from torch import Tensor, nn

from leapmpi.errors import ConfigError, counted
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.own.passage import PLAIN, Mark, Passage, marks_of
from leapmpi.nn.own.relation_graph import RelationGraph, TypedBlockGraph

_CARRIED = ("edge_weight", "edge_attr")
"""Arguments that receive data of edges."""

EDGES, ALL_EDGES = "edge_index", "edge_index_dict"
"""Arguments that receive edges: of the graph or one relation, and of all relations of a typed graph."""


class MessagePassings:
    """Hooks on all modules of `module` that pass messages; `passage` is set while the module runs."""

    def __init__(self, module: nn.Module, named: str) -> None:
        self.named = named
        self.passage: Passage | None = None
        self._put_back: list[tuple[nn.Module, str, Any]] = []
        self.found = message_passings(module)
        for name, each in self.found.items():
            each.register_forward_pre_hook(partial(self._before, name), with_kwargs=True)
            each.register_forward_hook(self._after, with_kwargs=True)
            if hasattr(each, "register_propagate_forward_pre_hook"):
                for step in ("propagate", "edge_update"):
                    getattr(each, f"register_{step}_forward_pre_hook")(self._passes)
                    getattr(each, f"register_{step}_forward_hook")(self._passed)
        # All modules are followed, so that messages can say where an error arose.
        for name, each in module.named_modules():
            each.register_forward_pre_hook(partial(self._enters, f"{name or 'forward'} ({type(each).__name__})"))
            each.register_forward_hook(self._leaves)

    def end(self) -> None:
        """Restore attributes that a call has changed, after an exception too."""
        self.passage = None
        while self._put_back:
            conv, name, value = self._put_back.pop()
            setattr(conv, name, value)

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _enters(self, name: str, module: nn.Module, args: tuple) -> None:
        if self.passage is not None:
            self.passage.enter(name, args)

    def _leaves(self, module: nn.Module, args: tuple, out: Any) -> None:
        if self.passage is not None:
            self.passage.leave(out)

    def _passes(self, module: nn.Module, inputs: tuple) -> None:
        if self.passage is not None:
            self.passage.edges = inputs[0] if isinstance(inputs[0], Tensor) else None

    def _passed(self, module: nn.Module, inputs: tuple, out: Any) -> None:
        if self.passage is not None:
            self.passage.edges = None

    def _before(self, name: str, conv: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """Return the arguments of this call on its block."""
        passage = self.passage
        if passage is None:
            return None
        # A message passing may call another one: only the outermost has a block of its own.
        passage.inside += 1
        if passage.inside > 1:
            return None
        passage.outer = len(passage.names)
        if passage.block_wise:
            return None
        bound = inspect.signature(conv.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        given, what = bound.arguments, f"{name} ({type(conv).__name__})"
        if passage.typed:
            passage.calls = self._level(given, what)
        if ALL_EDGES in given:
            self._all_relations(given, what)
            return bound.args, bound.kwargs
        graph = self._graph(given, what)
        passage.ends = graph.kinds if isinstance(graph, RelationGraph) else (PLAIN, PLAIN)
        for key in _CARRIED:
            if given.get(key) is not None:
                given[key] = self._of_edges(key, given[key], graph, what)
        # After the weights: a layer that normalises by degrees replaces them by weights of its block.
        edge_index = self._normalised(conv, given, graph)
        for key, value in given.items():
            if key != "edge_index":
                given[key] = passage.shortened(value, passage.calls)
        given["edge_index"] = edge_index
        self._rows(conv, given, graph, what)
        return bound.args, bound.kwargs

    def _after(self, conv: nn.Module, args: tuple, kwargs: dict, out: Any) -> Any:
        """Return the rows of the destinations."""
        passage = self.passage
        if passage is None:
            return None
        passage.inside -= 1
        if passage.inside or passage.block_wise:
            return None
        sources, destinations = passage.rows[passage.calls : passage.calls + 2]
        passage.calls += 1
        while self._put_back:
            module, name, value = self._put_back.pop()
            setattr(module, name, value)

        # Layers that keep the rows of all sources: only those of destinations go on.
        def of_destinations(rows: Any, source: int, kind: int) -> Any:
            if isinstance(rows, Tensor) and rows.dim() and rows.size(0) == sources[source] != destinations[kind]:
                rows = rows[: destinations[kind]]
            return passage.marked(rows, Mark(passage.calls, kind))

        if isinstance(out, dict):
            return {name: of_destinations(rows, *[passage.kind_of(name)] * 2) for name, rows in out.items()}
        assert passage.ends is not None, "`_before` has found them"
        first, *others = out if isinstance(out, tuple) else (out,)
        first = of_destinations(first, *passage.ends)
        return (first, *others) if isinstance(out, tuple) else first

    # -- parts of a call ---------------------------------------------------------------------------------------------

    def _level(self, given: dict[str, Any], what: str) -> int:
        """Return the level of the rows that a module of a typed graph reads. Raises ConfigError for other rows."""
        levels = [mark.level for mark in marks_of(given)]
        if not levels:
            raise ConfigError(
                f"--model {self.named}: {what} gets rows that are not made of those that forward was given; hand on "
                "those of x_dict, or what layers make of them"
            )
        return max(levels)

    def _all_relations(self, given: dict[str, Any], what: str) -> None:
        """Set the edges of all relations, and rows of the sources, for a module that takes both by type."""
        passage = self.passage
        assert passage is not None
        self._check_layers(what)
        first, graph = passage.graphs[0], passage.graphs[passage.calls]
        assert isinstance(first, TypedBlockGraph)
        assert isinstance(graph, TypedBlockGraph)
        passage.ends = None
        edges = given.pop(ALL_EDGES)
        unknown = [name for name, each in edges.items() if each is not first.edge_index_dict.get(name)]
        if unknown:
            raise ConfigError(self._other_edges(what, unknown[0]))
        for key, value in given.items():
            given[key] = passage.shortened(value, passage.calls)
        given[ALL_EDGES] = {name: graph.edge_index_dict[name] for name in edges}

    def _check_layers(self, what: str) -> None:
        """Raise ConfigError where there is no block for another message passing."""
        assert self.passage is not None
        layers = len(self.passage.graphs)
        if self.passage.calls == layers:
            raise ConfigError(
                f"--model {self.named}: {what} is message passing number {layers + 1}, but --fanout names "
                f"{counted(layers, 'layer')}; give one fan-out for each"
            )

    def _other_edges(self, what: str, relation: object = "") -> str:
        of = f" of {relation}" if relation else ""
        return (
            f"--model {self.named}: {what} gets an edge_index{of} other than the one that forward was given; hand that "
            "on as it is: each message passing runs on a sampled block of its own"
        )

    def _graph(self, given: dict[str, Any], what: str) -> BlockGraph | RelationGraph:
        """Return the graph of this call's block, or of its relation. Raises ConfigError where there is none."""
        passage = self.passage
        assert passage is not None
        self._check_layers(what)
        edges, first, graph = given.get(EDGES), passage.graphs[0], passage.graphs[passage.calls]
        if isinstance(first, TypedBlockGraph) and isinstance(graph, TypedBlockGraph):
            for name, each in first.edge_index_dict.items():
                if edges is each:
                    return graph.relations[name]
        elif edges is first.edge_index:
            return graph
        raise ConfigError(self._other_edges(what))

    def _of_edges(self, key: str, value: Any, graph: BlockGraph | RelationGraph, what: str) -> Tensor:
        """Return the block's own values in place of those of the first block, weights or features."""
        assert self.passage is not None
        name = next((each for each in _CARRIED if value is getattr(self.passage.graphs[0], each)), None)
        if name is None:
            raise ConfigError(
                f"--model {self.named}: {what} gets an {key} other than the one that forward was given; hand that on "
                "as it is: each message passing runs on a sampled block of its own"
            )
        found: Tensor = getattr(graph, name)
        return found

    def _normalised(self, conv: nn.Module, given: dict[str, Any], graph: BlockGraph | RelationGraph) -> Tensor:
        """Return the block's edge_index; for layers that normalise, set weights by degrees in the whole graph."""
        if getattr(conv, "normalize", None) is not True or "edge_weight" not in given:
            return graph.edge_index
        self._put_back.append((conv, "normalize", True))
        conv.normalize = False  # type: ignore[assignment]
        loops = getattr(conv, "add_self_loops", False) is True
        fill = 2.0 if getattr(conv, "improved", False) else 1.0
        edge_index, given["edge_weight"] = graph.normalised(fill if loops else 0.0, given["edge_weight"] is not None)
        return edge_index

    def _rows(self, conv: nn.Module, given: dict[str, Any], graph: BlockGraph | RelationGraph, what: str) -> None:
        """Set the first argument, rows of the sources, in the form that `conv` takes. Raises ConfigError for others."""
        first = next(iter(given))
        x = given[first]
        rows = x[0] if isinstance(x, tuple) else x
        if isinstance(rows, Tensor) and (not rows.dim() or rows.size(0) != graph.n_src):
            raise ConfigError(
                f"--model {self.named}: {what} gets {first} of {list(rows.shape)}, but its block has {graph.n_src} "
                "sources; keep one row per vertex between message passings"
            )
        if isinstance(x, tuple):
            given[first] = tuple(each if n == 0 or each is None else each[: graph.n_dst] for n, each in enumerate(x))
        elif isinstance(x, Tensor) and _takes_pairs(conv, first):
            given[first] = (x, x[: graph.n_dst])


def message_passings(module: nn.Module) -> dict[str, nn.Module]:
    """Return the modules within `module` that pass messages, by name."""
    # Where PyG was never loaded, there is none of its modules.
    pyg = sys.modules.get("torch_geometric.nn.conv")
    of_pyg = {name for name, each in module.named_modules() if pyg and isinstance(each, pyg.MessagePassing)}
    taking = {name for name, each in module.named_modules() if name and _takes_edges(each)} | of_pyg

    def holds(name: str) -> bool:
        return any(other != name and other.startswith(f"{name}.") for other in taking)

    return {
        name: each for name, each in module.named_modules() if name in of_pyg or (name in taking and not holds(name))
    }


def _takes_edges(module: nn.Module) -> bool:
    try:
        return bool({EDGES, ALL_EDGES} & set(inspect.signature(module.forward).parameters))
    except (TypeError, ValueError):
        return False


def _takes_pairs(conv: nn.Module, argument: str) -> bool:
    """Return whether `argument` of `conv` is annotated as a pair of rows, of sources and of destinations."""
    annotation = inspect.signature(conv.forward).parameters[argument].annotation
    return any(word in str(annotation) for word in ("Tuple", "tuple", "PairTensor"))
