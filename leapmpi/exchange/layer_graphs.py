"""The part of every layer that each rank computes, with the rows that it receives and sends: made once, then kept.

Graphs are built from the last layer down. A rank computes some destinations (in the last layer its training vertices),
and reads their in-neighbours. It *caches* some of the remote inputs: it computes them itself one layer below. The
others are *communicated* by their owners: as rows, as projected rows, or as partial sums. Any choice gives the same
gradient. In NeutronStar (SIGMOD 2022), DepComm communicates all rows, and DepCache caches all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.items import Items, items_of
from leapmpi.exchange.named_edges import EdgeNames, KnownEdges
from leapmpi.exchange.stage import RowRoutes, by_rank
from leapmpi.plan.distinct_vertices import DistinctVertices
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block
from leapmpi.sampling.sampler import Drawn, Sampler
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

KINDS = RAW, PROJECTED, PARTIAL = "raw", "projected", "partial"
"""Kinds of communication for a layer: plain rows, projected rows, or partial sums, possibly with projected rows."""

_NOWHERE = -1
"""The number of a row that is not here."""


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """Inputs of one layer (0 is the first) on one rank: its block, and int64[n_src], the owner of each source."""

    layer: int
    block: Block
    home: np.ndarray
    _found: dict[tuple[bool, bool], tuple[np.ndarray, Items]] = field(default_factory=dict)

    def items(self, chosen: np.ndarray, ranks: int, exact: bool = True, mixes: bool = True) -> Items:
        """Return `items_of` the block; those of the last `chosen` sources (bool[n_src]) are kept."""
        kept = self._found.get((exact, mixes))
        if kept is None or not np.array_equal(kept[0], chosen):
            kept = self._found[exact, mixes] = chosen, items_of(self.block, self.home, chosen, ranks, exact, mixes)
        return kept[1]


@dataclass(frozen=True, eq=False)
class Split:
    """Origins of the remote inputs of a layer.

    cached: bool[n_src], sources that this rank computes itself, or, in the first layer, whose features it keeps.
    as_kind: bool[ranks], owners whose other sources arrive in the layer's kind; those of other owners arrive as rows.
    An owner that sends sums adds up all its sources, so none of them is cached. destinations_as_rows: sources that are
    destinations too arrive as rows from all owners, where a layer needs more of them than of other sources. mixes:
    whether owners that send sums send projected rows too, where these serve more edges.
    """

    cached: np.ndarray
    as_kind: np.ndarray
    destinations_as_rows: bool = False
    mixes: bool = False


class Chooser(Protocol):
    """A rule that splits the inputs of a layer. Pure."""

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Estimate this rank's cost of feeding the layer by each of KINDS: float64, infinite where impossible."""

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Split the inputs by origin, once the ranks have agreed on `kind` for this layer."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """Destinations of other ranks, their edges `known`, and int64 `rows` of the matrix that these read here, or -1.

    self_rows: int64[n], the row of each destination itself, or -1.
    """

    known: KnownEdges
    rows: np.ndarray
    self_rows: np.ndarray


@dataclass(frozen=True, eq=False)
class MixedRoutes:
    """Projected rows among shares of sums.

    sent_rows: int64[k], rows of the matrix that are projected for others. sent_order: int64[sent], the order in which
    shares, and then these rows, are sent. are_rows: bool[received]. vertices: int64[r], those of received rows;
    edge_rows: int64[edges], the number of the received row that serves an edge of the block, or -1.
    """

    sent_rows: np.ndarray
    sent_order: np.ndarray
    are_rows: np.ndarray
    vertices: np.ndarray
    edge_rows: np.ndarray


@dataclass(frozen=True, eq=False)
class KindRoutes:
    """Routes of a layer whose kind is not raw. The matrix is that of RowRoutes, or of the features of `vertices`.

    vertices: int64[rows], those of the matrix. source_rows: int64[n_src], the row of each source, -1 where another rank
    gives its share. received: int64[m], by rank, the numbers of sources (projected) or destinations (partial) for which
    rows arrive; received_counts: int64[ranks]. sent_counts: int64[ranks], rows for others, by rank. They are the
    projected rows `sent_rows` of the matrix, or sums for the destinations of `foreign`. mixed: the items of a partial
    layer that are projected rows.
    """

    vertices: np.ndarray
    source_rows: np.ndarray
    received: np.ndarray
    received_counts: np.ndarray
    sent_counts: np.ndarray
    sent_rows: np.ndarray | None = None
    foreign: Foreign | None = None
    mixed: MixedRoutes | None = None


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """One layer on one rank. `rows` is None for the first layer, `by_kind` for layers that are fed by rows alone."""

    block: Block
    kind: str
    rows: RowRoutes | None
    by_kind: KindRoutes | None


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """The part of all layers that one rank computes.

    roots: int64[n], its training vertices, the first destinations of every block. plans: from the first layer to the
    last. fed: int64[k], the vertices whose features the first layer reads here in every iteration. cached: those of
    other ranks among them whose features are fetched once and kept.
    """

    roots: np.ndarray
    plans: list[LayerPlan]
    fed: np.ndarray
    cached: np.ndarray
    summed: np.ndarray | None = None
    """int64[k]: vertices whose features are summed once for the first layer, where the sums are kept."""
    by_owner: bool = False
    """Whether layers hold the rows of one other rank at a time where they can; the same on all ranks."""
    features_stay: bool = False
    """Whether no features cross ranks in any iteration, so that the first layer's inputs are fetched once."""

    @property
    def blocks(self) -> list[Block]:
        """From the last layer to the first."""
        return [plan.block for plan in reversed(self.plans)]


class GraphBuilder:
    """Builds the LayerGraph of one rank, from the last layer down; for each layer `costs`, `needs` and `give` in turn.

    The result of `needs` goes to other ranks, and their requests are passed to `give`. All is local, unless the
    topology is sharded: then `costs` and `give` are collective.
    """

    exact = True
    """Whether items are the fewest, which takes longer to find."""

    def __init__(
        self, sampler: Sampler, roots: np.ndarray, rank_offsets: np.ndarray, rank: int, layers: int, chooser: Chooser
    ) -> None:
        """Begin at the last layer; `sampler` draws all in-neighbours of one hop, and `rank` owns `roots` int64[n]."""
        self.sampler, self.rank_offsets, self.rank, self.chooser = sampler, rank_offsets, rank, chooser
        self.roots, self.layers = roots, layers
        self._layer, self._destinations = layers - 1, roots
        self._plans: list[LayerPlan] = []
        self._key = DrawKey(TRAIN, 0, 0, 0)

    def block(self, hop: int, destinations: np.ndarray) -> Block:
        """Return the edges of `destinations` (int64[n], distinct) at `hop`."""
        (found,) = self.sampler.sample(self._key, destinations)
        return replace(found, hop=hop)

    def drawn(self, hop: int, destinations: np.ndarray) -> Drawn:
        """Draw the edges of `destinations` (int64[n]) of other ranks, where the topology is whole. Local."""
        return self.sampler.neighbours(self._key, 0, destinations)

    def costs(self) -> np.ndarray:
        """Estimate this rank's cost of feeding this layer by each of KINDS: float64."""
        block = self.block(self.layers - 1 - self._layer, self._destinations)
        self._inputs = LayerInputs(self._layer, block, home_of(block.src, self.rank_offsets))
        return self.chooser.costs(self._inputs)

    def needs(self, kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """List the requests to other ranks: vertices, int64 by rank, and int64[ranks], how many of each.

        The first list names rows. For a layer of another `kind`, the second names projected rows, or destinations of
        sums. A third then names sources whose projected rows serve more edges.
        """
        block, home = self._inputs.block, self._inputs.home
        split = self.chooser.split(self._inputs, kind)
        remote = home != self.rank
        cached = split.cached & remote
        if kind == PARTIAL:
            # An owner that sends sums adds up all its sources, so a cached one would be counted twice.
            cached &= ~split.as_kind[home]
        elsewhere = remote & ~cached
        by_kind = elsewhere & split.as_kind[home] if kind != RAW else np.zeros(block.n_src, bool)
        by_kind[: block.n_dst] &= not split.destinations_as_rows
        self._kind, self._cached, self._by_kind = kind, cached, by_kind
        # Features of the first layer arrive through the fetcher, with all others that are not kept.
        self._rows = self._sorted(np.flatnonzero(elsewhere & ~by_kind) if self._layer else np.empty(0, np.int64))
        requests = [(block.src[self._rows], self._counts(home[self._rows]))]
        if kind == RAW:
            return requests

        # Items are kept: `give` makes the routes of what arrives from them, in the order of these requests.
        if kind == PROJECTED:
            self._received = self._sorted(np.flatnonzero(by_kind))
            owners = home[self._received]
        else:
            ranks = len(self.rank_offsets) - 1
            self._items = self._inputs.items(self._by_kind, ranks, self.exact, split.mixes)
            owners, self._received = np.divmod(self._items.pairs, max(1, block.n_dst))
            self._pair_counts = self._counts(owners)
        requests.append((block.src[self._received], self._counts(owners)))
        if kind == PARTIAL:
            requests.append((block.src[self._items.rows], self._counts(home[self._items.rows])))
        return requests

    def give(self, requested: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Compute one layer below what other ranks requested too.

        requested: for each list of `needs`, vertices int64 by rank, and int64[ranks] of them.
        """
        inputs, block = self._inputs, self._inputs.block
        (rows_of_others, row_counts), *others = requested
        foreign, counts = others[0] if others else (np.empty(0, np.int64), np.zeros_like(row_counts))
        self._rows_of_others = others[1] if self._kind == PARTIAL else (foreign[:0], np.zeros_like(row_counts))
        known = self._known(foreign) if self._kind == PARTIAL else None

        # The layer below computes all that is read here: by the own block, and by what others are sent. Roots come
        # first in every layer, because a head may read their rows of all layers.
        here = ~self._by_kind
        here[self._rows] = False
        positions = np.flatnonzero(here)
        read = foreign if known is None else np.concatenate((foreign, known.neighbours, self._rows_of_others[0]))
        read = read[home_of(read, self.rank_offsets) == self.rank]
        wanted = np.concatenate((block.src[positions], rows_of_others, read))
        vertices = DistinctVertices.of(self.roots if self._layer else np.empty(0, np.int64), wanted)
        self._destinations = vertices.ids

        # A raw layer reads a matrix in the order of its block. Other kinds read own rows first, then received ones:
        # they compute with all own rows, also those that only other ranks read.
        places = positions, vertices.numbers(block.src[positions])
        sent = vertices.numbers(rows_of_others)
        received = self._counts(inputs.home[self._rows])
        travelling = block.src[self._rows], rows_of_others
        routes = by_kind = None
        if self._layer and self._kind == RAW:
            routes = RowRoutes(block.n_src, places[0], self._rows, received, row_counts, places[1], sent, *travelling)
        elif self._layer:
            own = np.arange(len(vertices.ids))
            arriving = len(own) + np.arange(len(self._rows))
            routes = RowRoutes(len(own) + len(arriving), own, arriving, received, row_counts, own, sent, *travelling)
        if self._kind != RAW:
            by_kind = self._kind_routes(vertices, places, foreign, counts, known)
        self._plans.append(LayerPlan(block, self._kind, routes, by_kind))
        self._layer -= 1

    def graph(self) -> LayerGraph:
        """Return the graph, once all layers are built."""
        first = self._plans[-1]
        fed = first.block.src if first.by_kind is None else first.by_kind.vertices
        return LayerGraph(self.roots, self._plans[::-1], fed, np.sort(first.block.src[self._cached]))

    def _kind_routes(
        self,
        vertices: DistinctVertices,
        places: tuple[np.ndarray, np.ndarray],
        foreign: np.ndarray,
        counts: np.ndarray,
        known: KnownEdges | None,
    ) -> KindRoutes:
        """Make the routes of this layer; `places` are those of sources here, `foreign` what others requested."""
        # Received rows follow own ones in the matrix; sources whose owners send shares have no row at all.
        block, home = self._inputs.block, self._inputs.home
        source_rows = np.full(block.n_src, _NOWHERE, np.int64)
        source_rows[places[0]] = places[1]
        source_rows[self._rows] = len(vertices.ids) + np.arange(len(self._rows))
        ids = np.concatenate((vertices.ids, block.src[self._rows]))
        if known is None:
            received = self._counts(home[self._received])
            return KindRoutes(ids, source_rows, self._received, received, counts, vertices.numbers(foreign))

        # Both sides order the items of a rank alike, shares before rows, so no item needs a mark on its way.
        rows, self_rows = (self._numbers_here(vertices, each) for each in (known.neighbours, foreign))
        of_others, (wanted, wanted_counts) = Foreign(known, rows, self_rows), self._rows_of_others
        items, shares = self._items, np.arange(len(foreign))
        received_counts = self._pair_counts, self._counts(home[items.rows])
        marks = np.zeros(len(self._received), bool), np.ones(len(items.rows), bool)
        mixed = MixedRoutes(
            sent_rows=vertices.numbers(wanted),
            sent_order=by_rank((shares, len(shares) + np.arange(len(wanted))), (counts, wanted_counts)),
            are_rows=by_rank(marks, received_counts),
            vertices=block.src[items.rows],
            edge_rows=items.edge_rows,
        )
        return KindRoutes(
            vertices=ids,
            source_rows=source_rows,
            received=by_rank((self._received, np.arange(len(items.rows))), received_counts),
            received_counts=received_counts[0] + received_counts[1],
            sent_counts=counts + wanted_counts,
            foreign=of_others,
            mixed=mixed if mixed.are_rows.any() or len(wanted) else None,
        )

    def _known(self, foreign: np.ndarray) -> KnownEdges:
        """Find the edges of the destinations `foreign` of other ranks, those that start here at least.

        Collective where the topology is sharded. There only owners hold the lists of their vertices, so the ranks that
        request sums name the edges.
        """
        sampler = self.sampler
        if isinstance(sampler, ShardedSampler):
            inputs = self._inputs
            own = KnownEdges.of(inputs.block), inputs.home[inputs.block.indices], self._pair_counts, self._received
            return EdgeNames(*own, sampler.answers).exchange(sampler.communicator)[0]
        drawn = self.drawn(self.layers - 1 - self._layer, foreign)
        return KnownEdges.listed(sampler.topology, foreign, *drawn)

    def _numbers_here(self, vertices: DistinctVertices, wanted: np.ndarray) -> np.ndarray:
        """Return the number of each vertex of this rank; -1 for others."""
        numbers = np.full(len(wanted), _NOWHERE, np.int64)
        mine = home_of(wanted, self.rank_offsets) == self.rank
        numbers[mine] = vertices.numbers(wanted[mine])
        return numbers

    def _sorted(self, positions: np.ndarray) -> np.ndarray:
        """Sort positions of sources by owner."""
        return positions[np.argsort(self._inputs.home[positions], kind="stable")]

    def _counts(self, ranks: np.ndarray) -> np.ndarray:
        return np.bincount(ranks, minlength=len(self.rank_offsets) - 1).astype(np.int64)


class SampledGraphBuilder(GraphBuilder):
    """Builds the LayerGraph of a mini-batch: at each hop a rank draws for the destinations that it computes."""

    exact = False

    def __init__(self, key: DrawKey, batch: np.ndarray, *of_rank: Any) -> None:
        """Begin; draws are those of `key` and `batch` (int64[B], all roots of the iteration). Else as GraphBuilder."""
        super().__init__(*of_rank)
        self._key, self._batch = key, batch

    def block(self, hop: int, destinations: np.ndarray) -> Block:
        return self.sampler.hop(self._key, hop, destinations, self._batch)

    def drawn(self, hop: int, destinations: np.ndarray) -> Drawn:
        return self.sampler.neighbours(self._key, hop, destinations, self._batch)


def build_here(builder: GraphBuilder, communicator: Communicator) -> LayerGraph:
    """Build the graph of this rank. Collective."""
    codec = IdCodec.any_id(builder.rank_offsets)
    for _ in range(builder.layers):
        kind = _cheapest(communicator.all_gather_rows(builder.costs()))
        builder.give([communicator.exchange_ids(*each, codec) for each in builder.needs(kind)])
    return builder.graph()


def _cheapest(costs: np.ndarray) -> str:
    """Choose the kind with the lowest cost over all ranks, the first of equals; `costs` float64[ranks, kinds]."""
    return KINDS[int(costs.sum(axis=0).argmin())]
