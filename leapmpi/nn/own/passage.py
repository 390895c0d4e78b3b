"""One run of a user's module over the blocks of a sample: the rows that a tensor holds, dropout, random functions.

Sources of every block begin with its destinations, so rows of any layer belong to the first of the outermost sources.
A tensor's `level` tells which rows it holds. Before message passing k there are as many rows as block k has sources,
after the last as many as roots. Where tensors of two levels meet, as in h = conv(h) + h, the first rows of the longer
one are taken. In a typed graph this holds for the rows of each type, and a tensor's mark names its type too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from leapmpi.nn.dropout import DropoutKey, drop_edges, drop_features
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.own.relation_graph import TypedBlockGraph
from leapmpi.nn.rows import dense
from leapmpi.system.counter_rng import fold, key_hash

_DROPOUT = {F.dropout, torch.dropout, torch.dropout_}

_RANDOM = {
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial),
    *(torch.rand_like, torch.randn_like, torch.randint_like, torch.poisson),
    *(Tensor.bernoulli, Tensor.bernoulli_, Tensor.uniform_, Tensor.normal_, Tensor.random_, Tensor.exponential_),
    *(Tensor.multinomial, Tensor.geometric_, Tensor.cauchy_, Tensor.log_normal_),
    *(F.gumbel_softmax, F.rrelu, F.alpha_dropout, F.feature_alpha_dropout),
    *(F.dropout1d, F.dropout2d, F.dropout3d, torch.alpha_dropout, torch.feature_dropout),
}
"""Functions that draw numbers in the order of calls, not by vertex."""

_MARK = "leapmpi_mark"

PLAIN, SEVERAL = -1, -2
"""In place of a type: that of all rows of a plain graph; that of a tensor made of rows of several types."""


class Mark(NamedTuple):
    """The rows that a tensor holds, or was made of: their level, and the number of their type."""

    level: int
    kind: int


class Passage(TorchFunctionMode):
    """A context around one run of `forward`.

    `graphs` are those of the blocks, from the outermost to the roots'; `vertices` int64[n] the original ids of the
    outermost sources; `key` that of dropout masks, None where nothing is dropped. kinds: int64[n], the types of the
    outermost sources of a typed graph.
    """

    def __init__(
        self, graphs: Sequence[BlockGraph], vertices: Tensor, key: DropoutKey | None, kinds: Tensor | None = None
    ) -> None:
        super().__init__()
        self.graphs, self.key = graphs, key
        self.rows: list[dict[int, int]] = [{PLAIN: n} for n in (*(graph.n_src for graph in graphs), graphs[-1].n_dst)]
        """Rows by level and type."""
        self.vertices = {PLAIN: vertices}
        """Original ids of the outermost sources, by type."""
        self.typed = kinds is not None
        if kinds is not None:
            by_type = [graph.counts for graph in graphs if isinstance(graph, TypedBlockGraph)]
            counts = [*([n_src for n_src, _ in each] for each in by_type), [n_dst for _, n_dst in by_type[-1]]]
            self.rows = [dict(enumerate(each)) for each in counts]
            self.vertices = {t: vertices[kinds == t] for t in range(len(by_type[0]))}
        self.ends: tuple[int, int] | None = (PLAIN, PLAIN)
        """Types of the sources and destinations of the running message passing, None where it reads all relations."""
        self.block_wise = False
        """Whether the module takes the graphs of all blocks, and passes them on itself."""
        self.calls = 0
        """Completed message passings."""
        self.inside = 0
        """Number of nested modules that pass messages and are running."""
        self.outer = 0
        """The place of the outermost of these in `names`."""
        self.names: list[str] = []
        """The running modules, from the outermost on."""
        self.random: dict[str, None] = {}
        """Descriptions of calls that drew numbers by call order."""
        self.edges: Tensor | None = None
        """The edge_index that messages are being passed along."""
        self.seen: list[tuple[str, Tensor, Tensor]] | None = None
        """Inputs and results of modules, in a noted run: name, vertices and rows."""
        self.odd: dict[str, str] = {}
        """The first places of NaN and infinite values, in a noted run."""
        self._dropouts = 0
        if key is not None:
            # Other draws of the module then repeat after a restart.
            seed = fold(key_hash(key), int(vertices[0]) if len(vertices) else 0)
            torch.default_generator.manual_seed(int(seed) >> 1)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUT:
            return self._dropped(func, args, kwargs)
        if func in _RANDOM:
            self._note(func)
        if self.seen is not None:
            return self._watched(func, args, kwargs)
        return self._followed(func, args, kwargs)

    def _watched(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Return the result of `func`, and note the first one of the run that is NaN or infinite."""
        out = self._followed(func, args, kwargs)
        if isinstance(out, Tensor) and out.is_floating_point() and not self.odd.get("nan"):
            kind = "nan" if out.isnan().any() else "infinite" if out.isinf().any() else ""
            if kind:
                self.odd.setdefault(kind, self._place(func))
        return out

    def _followed(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Return the result of `func`; outside of message passing, tensors are cut to the same rows first."""
        if self.inside and not self.typed:
            return func(*args, **kwargs)
        marks = set(marks_of((*args, *kwargs.values())))
        if not marks:
            return func(*args, **kwargs)
        level, kinds = max(each.level for each in marks), {each.kind for each in marks}
        if len(marks) > 1 and not self.inside:
            args, kwargs = self.shortened(args, level), self.shortened(kwargs, level)
        return self.marked(func(*args, **kwargs), Mark(level, kinds.pop() if len(kinds) == 1 else SEVERAL))

    def enter(self, name: str, args: tuple) -> None:
        """Note that a module begins to run, and its input as a result of the module that runs it."""
        if self.names and args:
            self._notice(args[0][0] if isinstance(args[0], tuple) and args[0] else args[0])
        self.names.append(name)

    def leave(self, out: Any) -> None:
        """Note that the running module has returned `out`."""
        self._notice(out)
        self.names.pop()

    def _notice(self, rows: Any) -> None:
        """Note `rows` as a result of the innermost module, in a noted run, where they are final ones of vertices.

        Results inside a layer count as the layer's, except those of a normalisation.
        """
        if self.seen is None or not isinstance(rows, Tensor) or not rows.dim():
            return
        kind = self._kind(rows)
        if kind not in self.vertices or rows.size(0) not in (each[kind] for each in self.rows):
            return
        # Inside message passing on a square graph, only destinations have received messages.
        within = self.inside and len(self.names) > self.outer
        count = min(len(rows), self.rows[self.calls + 1][kind]) if within else len(rows)
        name = self.names[self.outer] if within and "Norm" not in self.names[-1] else self.names[-1]
        self.seen.append((name, self.vertices[kind][:count], rows.detach()[:count]))

    def marked(self, out: Any, mark: Mark) -> Any:
        """Mark `out`, a tensor or several, as holding the rows of `mark` where it has as many, and return it.

        In a typed graph it is marked in any case: modules add up relations by way of stacks of rows.
        """
        if type(out) in (list, tuple):
            for each in out:
                self.marked(each, mark)
        elif isinstance(out, Tensor) and out.dim() and (self.typed or out.size(0) == self.rows[mark.level][mark.kind]):
            setattr(out, _MARK, mark)
        return out

    def holds_rows(self, tensor: Tensor) -> bool:
        """Return whether `tensor` is known to hold a row for each vertex of some level."""
        mark = getattr(tensor, _MARK, None)
        return mark is not None and tensor.size(0) == self.rows[mark.level].get(mark.kind)

    def shortened(self, values: Any, level: int) -> Any:
        """Return `values` with tensors of an earlier level cut to the rows of `level`."""
        if isinstance(values, Tensor):
            if not self.holds_rows(values):
                return values
            mark = getattr(values, _MARK)
            if mark.level >= level:
                return values
            return self.marked(values[: self.rows[level][mark.kind]], Mark(level, mark.kind))
        if isinstance(values, dict):
            return {name: self.shortened(each, level) for name, each in values.items()}
        if type(values) in (list, tuple):
            return type(values)(self.shortened(each, level) for each in values)
        return values

    def _note(self, func: Any) -> None:
        if self.key is not None:
            self.random[self._place(func)] = None

    def _place(self, func: Any) -> str:
        """Return the name of `func`, and of the module that calls it."""
        name = getattr(func, "__name__", str(func))
        return f"{name} in {self.names[-1]}" if self.names else name

    def _dropped(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        """Replace dropout `func` by masks keyed by vertex and column, or by the ends of an edge and column."""
        names = ("input", "p", "training" if func is F.dropout else "train")
        given = dict(zip(names, args, strict=False)) | kwargs
        x, rate, on = given["input"], float(given.get("p", 0.5)), given.get(names[2], True)
        if self.key is None or not on or rate == 0:
            return x
        # Counted even where this rank has no rows, so that ranks number their masks alike.
        self._dropouts += 1
        rows = x.size(0) if x.dim() else -1
        flat = x.reshape(rows, -1) if x.dim() and x.numel() else x
        if not x.numel():
            return x
        # The number of rows tells what they are: rows of edges, of vertices of a level, or neither.
        kind = self._kind(x)
        if self.edges is not None and self.ends is not None and rows == self.edges.size(1):
            source, target = (self.vertices[end][each] for end, each in zip(self.ends, self.edges, strict=True))
            out = drop_edges(flat, source, target, self.key, self._dropouts, rate)
        elif kind in self.vertices and rows in (each[kind] for each in self.rows):
            out = dense(drop_features(flat, self.vertices[kind][:rows], self.key, self._dropouts, rate))
        else:
            self._note(func)
            return func(*args, **kwargs)
        return self._like(x, out.reshape(x.shape))

    def kind_of(self, name: str) -> int:
        """Return the number of the type called `name`."""
        assert isinstance(self.graphs[0], TypedBlockGraph), "types are those of a typed graph"
        return self.graphs[0].names.index(name)

    def _kind(self, rows: Tensor) -> int:
        """Return the number of the type of `rows`, by their mark; SEVERAL where it is unknown."""
        if not self.typed:
            return PLAIN
        mark = getattr(rows, _MARK, None)
        return SEVERAL if mark is None else mark.kind

    def _like(self, x: Tensor, out: Tensor) -> Tensor:
        if (mark := getattr(x, _MARK, None)) is not None:
            setattr(out, _MARK, mark)
        return out


def marks_of(values: Any) -> Iterator[Mark]:
    """Yield the marks of the tensors among `values`."""
    for each in values.values() if isinstance(values, dict) else values:
        if isinstance(each, Tensor):
            mark = getattr(each, _MARK, None)
            if mark is not None:
                yield mark
        elif type(each) in (list, tuple, dict):
            yield from marks_of(each)
