"""What an iteration must read and send, counted by hand from its schedule and blocks."""

from collections import defaultdict
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import h5py
import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.dataset.topology import load_topology
from leapmpi.engine.placement import labelled
from leapmpi.exchange.selection import exchange_mode
from leapmpi.forecast.simulator import Forecaster
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.nn.sharded_parameters import input_projections
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.layer_tables import FrontierSampler
from leapmpi.sampling.sampler import LOCAL, Setup
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.strategies.owner import OwnerGraphs
from leapmpi.system.counter_rng import bounded, fold

ID = 4
"""Bytes of an id: an offset in a range shorter than 2**32."""


def expected_traffic(minibatch, loaded, engine) -> dict[str, int]:
    """Bytes by kind that this rank sends and rows by place that it reads in one iteration. Collective."""
    ctx, communicator = loaded.ctx, loaded.ctx.communicator
    home = home_ranks(loaded.dataset, communicator.size)
    counts = dict.fromkeys((*KINDS, *ROWS), 0)
    roots = {int(root) for micro_batch in labelled(engine.placement, minibatch) for root in micro_batch}
    parts = INPUT[engine.mode_name](minibatch, loaded, home), _labels(roots, loaded, home, engine)
    kept = isinstance(engine.preparation, FullBatchGraphs)
    if isinstance(engine.preparation, OwnerGraphs):
        parts = *parts, _named_to_owners(minibatch, communicator)
    if ctx.sampler.sharded and isinstance(engine.preparation, OwnerGraphs):
        plans = minibatch.graph.plans
        named = [_edges_named(plan, loaded, home) for plan in plans if plan.kind == "partial"]
        samples = [[plan.block] for plan in plans]
        parts = *parts, _lists(samples, loaded, home), *_of_draws(samples, minibatch, loaded, home), *named
    elif ctx.sampler.sharded and not kept:
        samples = [each.blocks for each in minibatch.micro_batches]
        parts = *parts, _lists(samples, loaded, home), *_of_draws(samples, minibatch, loaded, home)
    further = () if kept else (_of_edges(minibatch, loaded, home), _of_batch_norm(minibatch, loaded, home))
    for part in (*parts, *further):
        for kind, count in part.items():
            counts[kind] += count
    if kept and not any(communicator.comm.allgather(counts["remote"])):
        # Features that nobody lacks are not asked for.
        counts["control"] -= _header(communicator)
    if communicator.rank == 0 and not kept:
        counts["schedule"] = 8 * words_of_schedules(minibatch.schedule, engine)
    if communicator.size > 1:
        numbers, width = shared_numbers(loaded, engine), ctx.parameters.gradients.element_size()
        bounds = [numbers * each // communicator.size for each in range(communicator.size + 1)]
        own = bounds[communicator.rank + 1] - bounds[communicator.rank]
        counts["gradients"] += width * ((numbers - own) + own * (communicator.size - 1))
        if engine.config.name == "leap":
            hops = engine.placement.time_steps - 1
            counts["parameters"] += hops * width * numbers
            counts["gradients"] += hops * width * numbers
    return counts


def forecast_traffic(config, dataset, topology, ranks: int, planned, key, prepare=lambda engine: None) -> Traffic:
    """Traffic that `leapmpi plan` counts of `planned` roots, had it the draws of `key`; `prepare` sees each engine."""
    job = Forecaster(dataset, topology).job(config, ranks)
    for engine in job.engines:
        prepare(engine)
    job.world.take()
    # Another plan of these roots could be a few bytes longer or shorter.
    spread = [each.roots._schedules for each in job.engines]
    job.world.run(lambda rank: spread[rank].alone(planned.roots if rank == 0 else None, 0, 0, lambda *_: planned))
    return job.count(job.draw_planned(planned, key))


def _lists(samples: list, loaded, home: np.ndarray) -> dict[str, int]:
    """New destinations at home elsewhere are named at each hop; their owners answer for all that were named so far."""
    communicator = loaded.ctx.communicator
    per_vertex, per_edge = _words(loaded)
    counts: dict[str, int] = defaultdict(int)
    for blocks in samples:
        hops = [(block.src, block.n_dst, np.diff(block.indptr)) for block in blocks]
        for rank, theirs in enumerate(communicator.comm.allgather(hops)):
            before = 0
            last = [(theirs[-1][0], len(theirs[-1][0]), None)] if _describes_last(loaded) else []
            for src, n_dst, drawn in [*theirs, *last]:
                new = home[src[before:n_dst]]
                if rank == communicator.rank:
                    counts["topology"] += ID * int((new != rank).sum())
                else:
                    mine = home[src[:n_dst]] == communicator.rank
                    words = per_vertex * int((new == communicator.rank).sum())
                    words += 0 if drawn is None else int(mine.sum()) + per_edge * int(drawn[mine].sum())
                    counts["topology"] += 4 * words
                before = n_dst
        counts["control"] += (2 * len(blocks) + _describes_last(loaded)) * _header(communicator)
    return counts


def _of_draws(samples: list, minibatch, loaded, home: np.ndarray) -> list[dict[str, int]]:
    """What ranks ask each other while they draw, by a sampler of the same kind that has the whole topology."""
    inner, communicator = loaded.ctx.sampler.inner, loaded.ctx.communicator
    if not isinstance(inner, RandomWalk | FrontierSampler):
        return []
    whole = type(inner)(Setup(load_topology(loaded.dataset), inner.fanouts, np.empty(0, np.int64), 0), inner.options)
    if isinstance(whole, RandomWalk):
        return [_walks(samples, minibatch.key, whole, communicator, loaded.ctx.rank_offsets)]
    return [_tables(minibatch, whole, communicator, home)]


def _tables(minibatch, whole, communicator, home: np.ndarray) -> dict[str, int]:
    """All ranks are told of the sources of a rank's frontier; what it draws of it is named to owners but at last."""
    topology, key, batch = whole.topology, minibatch.key, minibatch.schedule.roots
    others, told, named, control = communicator.size - 1, 0, 0, 0
    frontier = {int(root) for root in batch}
    for hop, fanout in enumerate(whole.fanouts):
        own = np.array(sorted(v for v in frontier if home[v] == communicator.rank), np.int64)
        ladies = type(whole).__name__ == "Ladies"
        rounds = 1 if ladies else 0 if fanout < 0 else whole.options.rounds
        choosing = own if ladies else own[topology.degree(own) > fanout]
        told += rounds * len({*topology.in_neighbours(choosing).tolist()}) * (ID + 8 * (1 + ladies))
        control += rounds * _header(communicator)
        if hop + 1 == len(whole.fanouts):
            break
        drawn = whole.neighbours(key, hop, own, batch).neighbours
        named += len({v for v in drawn.tolist() if home[v] != communicator.rank})
        control += _header(communicator)
        frontier |= {v for theirs in communicator.comm.allgather(drawn.tolist()) for v in theirs}
    return {"topology": others * told + ID * named, "control": control}


def _walks(samples: list, key, walker, communicator, offsets: np.ndarray) -> dict[str, int]:
    """A step from a vertex of another rank than the walk's start names it with a word, and is told two numbers."""
    asked = np.zeros((communicator.size, communicator.size), np.int64)
    mine = [(block.hop, block.dst) for blocks in samples for block in blocks]
    for hop, destinations in (each for theirs in communicator.comm.allgather(mine) for each in theirs):
        asked += _crossings(walker, key, hop, destinations, offsets)
    np.fill_diagonal(asked, 0)
    topology = (ID + 8) * asked[communicator.rank].sum() + 2 * ID * asked[:, communicator.rank].sum()
    return {"topology": int(topology), "control": len(mine) * (walker.options.steps - 1) * _header(communicator)}


def _crossings(walker, key, hop: int, destinations: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Steps after the first of walks from rank r at vertices of rank q: int64[ranks, ranks]."""
    topology, ranks, hashed = walker.topology, len(offsets) - 1, walker.hashed(key, hop)
    found = np.zeros((ranks, ranks), np.int64)
    for start, walk in product(destinations.tolist(), range(walker.options.walks)):
        word, here = _folded(_folded(hashed, topology.original_id[start]), walk), start
        for step in range(walker.options.steps):
            at = np.searchsorted(offsets, [start, here], side="right") - 1
            found[at[0], at[1]] += step > 0
            sources = topology.in_neighbours(np.array([here]))
            if not len(sources):
                break
            here = int(sources[bounded(_folded(word, 2 * step), len(sources))])
            if _folded(word, 2 * step + 1) < walker.stop:
                break
    return found


def _folded(word: np.uint64, number: int) -> np.uint64:
    return np.uint64(fold(word, np.uint64(number)))


def _edges_named(plan, loaded, home: np.ndarray) -> dict[str, int]:
    """Owners of sources hear of each destination its edges there, counts, degree and sums."""
    communicator, block = loaded.ctx.communicator, plan.block
    carried = loaded.topology.own.edge_weight is not None
    of_edge = 1 + loaded.ctx.sampler.weighted + carried
    away = int((home[block.src[block.indices]] != communicator.rank).sum())
    pairs = int(plan.by_kind.received_counts.sum())
    return {"topology": 4 * ((4 + 4 * carried) * pairs + of_edge * away), "control": 2 * _header(communicator)}


def _describes_last(loaded) -> bool:
    """Whether the first layer reads names or degrees of all its sources: gcn, and whatever drops something there."""
    layer = loaded.ctx.model.layers[0]
    return type(layer).__name__ == "GCNLayer" or layer.dropout > 0 or getattr(layer, "attention_dropout", 0) > 0


def _words(loaded) -> tuple[int, int]:
    """Words of four bytes about a vertex and about an edge: names, degree, sum; source, weight, number, weight."""
    carried = loaded.topology.own.edge_weight is not None
    numbered = carried or any("edge_features" in layer.edge_data for layer in loaded.ctx.model.layers)
    return 2 + 2 * carried, 1 + loaded.ctx.sampler.weighted + numbered + carried


def _labels(roots: set[int], loaded, home: np.ndarray, engine) -> dict[str, int]:
    """Labels of roots at home elsewhere: their ids are sent, and labels that others lack; nothing where none lacks."""
    width, communicator = label_bytes(loaded.dataset.part_path(0)), loaded.ctx.communicator
    if engine.config.name != "naive" and not any(
        communicator.comm.allgather(any(home[root] != communicator.rank for root in roots))
    ):
        return {}
    asked, answered = _request(roots, loaded.ctx.communicator, home)
    return {"ids": ID * asked, "labels": answered * width, "control": _header(loaded.ctx.communicator)}


def _of_edges(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Features of every distinct edge of the iteration whose destination is at home elsewhere."""
    if not any("edge_features" in layer.edge_data for layer in loaded.ctx.model.layers):
        return {}
    communicator, edges = loaded.ctx.communicator, set()
    for block in (each for micro_batch in minibatch.micro_batches for each in micro_batch.blocks):
        of_edge = np.repeat(block.src[: block.n_dst], np.diff(block.indptr))
        edges |= set(zip(of_edge.tolist(), block.src[block.indices].tolist(), strict=True))
    away = [destination for destination, _ in edges if home[destination] != communicator.rank]
    answered = sum(
        int(home[each]) == communicator.rank for found in communicator.comm.allgather(away) for each in found
    )
    width = 4 * loaded.dataset.edge_feature_dim
    return {"ids": ID * len(away), "edge_features": answered * width, "control": _header(communicator)}


def _of_batch_norm(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Every destination and its innermost block go to its home, a byte comes back; sums go from all ranks to all."""
    communicator = loaded.ctx.communicator
    widths = [len(each) for name, each in loaded.ctx.model.statistics().items() if name.endswith("mean")]
    if not widths:
        return {}
    asked, answered = _request({int(each) for each in minibatch.micro_batches[0].blocks[-1].dst}, communicator, home)
    sums = sum(8 * (1 + 4 * width) for width in widths)
    return {
        "ids": (ID + 1) * asked + answered, "control": _header(communicator),
        "activations": (communicator.size - 1) * sums,
    }  # fmt: skip


def _raw_of_blocks(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Every distinct row of the iteration."""
    read = {int(vertex) for micro_batch in minibatch.micro_batches for vertex in micro_batch.blocks[-1].src}
    return _raw(read, loaded, home)


def _raw(read: set[int], loaded, home: np.ndarray) -> dict[str, int]:
    """Every row of `read` that is at home elsewhere and not cached, as it is at rest."""
    communicator, size = loaded.ctx.communicator, feature_bytes(loaded.dataset)
    kept = set(loaded.ctx.features.cache.ids.tolist()) if loaded.ctx.features.cache else set()
    asked, _ = _request(read - kept, communicator, home)
    away = [vertex for vertex in read - kept if home[vertex] != communicator.rank]
    sent = [
        vertex for each in communicator.comm.allgather(away) for vertex in each if home[vertex] == communicator.rank
    ]
    return {
        "ids": ID * asked, "features": int(size[sent].sum()), "control": _header(communicator),
        "remote": asked, "cached": len(read & kept), "local": len(read - kept) - asked,
    }  # fmt: skip


def _projected(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Each cell asks for rows of projected numbers and sends as many gradients back."""
    counts: dict[str, int] = defaultdict(int)
    communicator, layer = loaded.ctx.communicator, loaded.ctx.model.layers[0]
    size = layer.dtype.itemsize
    for micro_batch in minibatch.micro_batches:
        if layer.rows.own_width:
            # What only destinations need is asked for by itself.
            destinations = {int(vertex) for vertex in micro_batch.blocks[-1].dst}
            asked, answered = _request(destinations, communicator, home)
            counts["ids"] += ID * asked
            counts["activations"] += (answered + asked) * layer.rows.own_width * size
            counts["control"] += _header(communicator)
        width = (layer.rows.source_width if layer.rows.own_width else layer.rows.width) * size
        read = {int(vertex) for vertex in micro_batch.blocks[-1].src}
        asked, answered = _request(read, communicator, home)
        counts["ids"] += ID * asked
        counts["activations"] += (answered + asked) * width
        counts["control"] += _header(communicator)
        counts["remote"] += asked
        counts["local"] += len(read) - asked
    return counts


def _partial(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Each cell asks every rank for the sums of destinations that need a row from there."""
    counts: dict[str, int] = defaultdict(int)
    communicator, layer = loaded.ctx.communicator, loaded.ctx.model.layers[0]
    width = layer.shares.width * layer.dtype.itemsize
    for micro_batch in minibatch.micro_batches:
        block = micro_batch.blocks[-1]
        of_neighbours = {
            (int(home[vertex]), i)
            for i in range(block.n_dst)
            for vertex in block.src[block.indices[block.indptr[i] : block.indptr[i + 1]]]
        }
        reads_own = layer.shares.reads_own or loaded.ctx.features.returned_row_bytes > 0
        of_itself = {(int(home[block.src[i]]), i) for i in range(block.n_dst) if reads_own}
        needs = of_neighbours | of_itself
        asked = [owner for owner, _ in needs if owner != communicator.rank]
        # A sum holds the self part; beside a maximum it is a row of its own.
        rows = [*of_neighbours, *of_itself] if layer.shares.layout.separate_self else needs
        if layer.shares.layout.share_rows == 2:
            rows += of_neighbours
        requested = [owner for owner, _ in rows if owner != communicator.rank]
        answered = sum(owners.count(communicator.rank) for owners in communicator.comm.allgather(requested))
        if loaded.ctx.sampler.sharded:
            edges = [(owner, int(block.src[i])) for i in range(block.n_dst) for owner in _homes_of(block, i, home)]
            pairs = [(owner, int(block.src[i])) for owner, i in needs]
            counts["topology"] += _named_edges(pairs, edges, loaded, home)
            counts["control"] += (1 + _owners_repeat_draws(loaded)) * _header(communicator)
        else:
            counts["ids"] += ID * len(asked)
        counts["activations"] += (answered + len(requested)) * width
        counts["control"] += _header(communicator)
        counts["remote"] += len(asked)
        if layer.shares.sent_width:
            # An owner asks the homes of destinations that have a neighbour there, once for each.
            pairs = [(owner, (int(block.src[i]),)) for owner, i in of_neighbours]
            if layer.shares.log_width:
                pairs = [
                    (owner, (int(block.src[i]), relation))
                    for (i, relation), owners in _owners_by_group(block, home).items()
                    for owner in owners
                ]
            named = {pair for found in communicator.comm.allgather(pairs) for pair in found}
            wanted = {vertex for owner, vertex in named if owner == communicator.rank}
            away = sum(int(home[vertex]) != communicator.rank for vertex, *_ in wanted)
            given = sum(home[vertex] == communicator.rank != owner for owner, (vertex, *_) in named)
            counts["ids"] += ID * away
            counts["activations"] += (away + given) * layer.shares.sent_width * layer.dtype.itemsize
            if loaded.ctx.sampler.sharded and layer.attention_dropout:
                # Masks read original ids, which only homes know.
                counts["ids"] += 8 * given
            counts["control"] += _header(communicator)
        if layer.shares.log_width:
            # Owners of part of a softmax send a logarithm, and receive that of the whole; gradients go back alike.
            split = [owners for owners in _owners_by_group(block, home).values() if len(owners) > 1]
            parts = [owner for owners in split for owner in owners if owner != communicator.rank]
            numbers = _there_and_back(parts, communicator) * layer.shares.log_width
            counts["activations"] += 2 * numbers * layer.dtype.itemsize
        # Rows at home are read for the destinations of all ranks.
        read = block.src if reads_own else block.src[block.indices]
        everyone = {int(vertex) for src in communicator.comm.allgather(read) for vertex in src}
        counts["local"] += sum(home[vertex] == communicator.rank for vertex in everyone)
    return counts


def _owners_by_group(block, home: np.ndarray) -> dict[tuple[int, int], set[int]]:
    """The owners of the edges of each destination and relation."""
    owners: dict[tuple[int, int], set[int]] = defaultdict(set)
    of_edge = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
    for i, relation, vertex in zip(of_edge, block.relation, block.src[block.indices], strict=True):
        owners[int(i), int(relation)].add(int(home[vertex]))
    return owners


def _homes_of(block, i: int, home: np.ndarray) -> list[int]:
    """Owners of the sources of destination `i`, edge by edge."""
    return home[block.src[block.indices[block.indptr[i] : block.indptr[i + 1]]]].tolist()


def _named_edges(pairs: list, edges: list, loaded, home: np.ndarray) -> int:
    """Bytes that name `pairs` of an owner and a destination, and `edges`, each an owner of a source and a destination.

    Owners that cannot draw again get the destination, counts, degree and sums, then sources and their weights. The
    owner of a destination has its list, and gets an id alone where draws depend on that list alone.
    """
    rank, sampler = loaded.ctx.communicator.rank, loaded.ctx.sampler
    carried = loaded.topology.own.edge_weight is not None
    repeats = _owners_repeat_draws(loaded)
    again = [repeats and home[vertex] == owner for owner, vertex in pairs if owner != rank]
    named = sum(owner != rank and not (repeats and home[vertex] == owner) for owner, vertex in edges)
    of_edge = 1 + sampler.weighted + carried
    return 4 * (sum(again) + (4 + 4 * carried) * (len(again) - sum(again)) + of_edge * named)


def _owners_repeat_draws(loaded) -> bool:
    """Whether draws of a vertex depend on its list alone."""
    return type(loaded.ctx.sampler.inner).__name__ in ("NodeWiseSampler", "WithReplacement", "Weighted", "Labor0")


def _sums(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Each destination of the iteration is named once to every rank that holds a row its sum reads; nothing goes back.

    Rows that destinations need by themselves come as raw rows.
    """
    communicator, layer = loaded.ctx.communicator, loaded.ctx.model.layers[0]
    reads: dict[int, set[int]] = {}
    for block in (each.blocks[-1] for each in minibatch.micro_batches):
        for i in range(block.n_dst):
            reads[int(block.src[i])] = set(block.src[block.indices[block.indptr[i] : block.indptr[i + 1]]].tolist())
    edges = [(int(home[vertex]), each) for each, found in reads.items() for vertex in found]
    # A mean is one of neighbours alone; so is a sum beside which a learned number weighs the row itself.
    apart = type(layer).__name__ == "SAGELayer" or hasattr(getattr(layer, "eps", None), "grad")
    counts: dict[str, int] = defaultdict(int)
    if apart or layer.residual is not None:
        counts |= _raw(set(reads), loaded, home)
    if not apart:
        reads = {vertex: {vertex, *found} for vertex, found in reads.items()}
    pairs = [(owner, each) for each, found in reads.items() for owner in {int(home[vertex]) for vertex in found}]
    asked = [owner for owner, _ in pairs if owner != communicator.rank]
    answered = sum(owners.count(communicator.rank) for owners in communicator.comm.allgather(asked))
    if loaded.ctx.sampler.sharded:
        counts["topology"] += _named_edges(pairs, edges, loaded, home)
        counts["control"] += (1 + _owners_repeat_draws(loaded)) * _header(communicator)
    else:
        counts["ids"] += ID * len(asked)
    counts["features"] += answered * layer.in_dim * layer.dtype.itemsize
    counts["control"] += _header(communicator)
    counts["remote"] += len(asked)
    everyone = set().union(*(set().union(*each) for each in communicator.comm.allgather(list(reads.values()))))
    counts["local"] += sum(home[vertex] == communicator.rank for vertex in everyone)
    return counts


def _columns(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Every other rank is told of the block and returns one share for each of its rows; gradients go back alike."""
    communicator, model = loaded.ctx.communicator, loaded.ctx.model
    layer, block = model.layers[0], minibatch.micro_batches[0].blocks[-1]
    by_rows = not layer.linear
    rows = block.n_src if by_rows else block.n_dst
    words = block.n_src if by_rows else 1 + 2 * block.n_dst + len(block.indices)
    width = layer.dtype.itemsize * (layer.rows.width if by_rows else layer.shares.width)
    read = {int(vertex) for src in communicator.comm.allgather(block.src) for vertex in src}
    others = communicator.size - 1
    return {
        "ids": others * words * ID,
        "activations": (sum(communicator.comm.allgather(rows)) - rows + others * rows) * width,
        "control": _header(communicator), "local": len(read),
    }  # fmt: skip


def _ring(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Models visit the ranks against their order, with the blocks of their roots and what these gather, and go back."""
    communicator, layer, model = loaded.ctx.communicator, loaded.ctx.model.layers[0], loaded.ctx.parameters
    by_rows, size = not layer.linear, communicator.size
    width = layer.dtype.itemsize * (layer.rows.width if by_rows else layer.shares.width)
    counts: dict[str, int] = defaultdict(int)
    every = communicator.comm.allgather(
        [(each.src, each.n_dst, each.src[each.indices]) for each in minibatch.micro_batches[0].blocks]
    )
    for step in range(size):
        start = (communicator.rank + step) % size
        *upper, (src, n_dst, neighbours) = every[start]
        seen = [(start - each) % size for each in range(step + 1)]
        gathered = int(np.isin(home[src], seen).sum()) if by_rows else n_dst
        # A parcel begins with the number of its arrays and their lengths.
        arrays = 2 * len(upper) + (3 if by_rows else 4)
        words = 1 + arrays + sum(n + len(edges) for _, n, edges in upper)
        left = len(neighbours)
        if not loaded.dataset.has_edge_weight:
            left -= int(np.isin(home[neighbours], seen).sum())
        words += len(src) + n_dst + len(neighbours) if by_rows else 3 * n_dst + left
        if step + 1 < size:
            counts["ids"] += ID * words
            counts["parameters"] += width_of(model) * model.count
            counts["activations"] += width * gathered
        if step:
            counts["gradients"] += width_of(model) * model.count
            before = int(np.isin(home[src], seen[:-1]).sum()) if by_rows else n_dst
            counts["activations"] += width * before
        read = {*src, *neighbours} if by_rows else {*src[:n_dst], *neighbours}
        counts["local"] += sum(home[vertex] == communicator.rank for vertex in read)
    counts["control"] = (size - 1) * _header(communicator)
    return counts


def _layer_by_layer(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Features for the first layer; above, rows that this rank has not computed, or sums; gradients go back alike."""
    communicator, activations = loaded.ctx.communicator, 0
    size, graph = loaded.ctx.parameters.values.element_size(), minibatch.graph
    for number, (layer, plan) in enumerate(zip(loaded.ctx.model.layers, graph.plans, strict=True)):
        src = plan.block.src.tolist()
        # What is read here as rows, of whatever is not computed here; sources of others come as the kind.
        rows = set(src)
        if plan.by_kind:
            rows = {vertex for vertex, row in zip(src, plan.by_kind.source_rows.tolist(), strict=True) if row >= 0}
        asked = [int(home[vertex]) for vertex in set(src) - rows]
        width = {
            "projected": layer.rows.source_width,
            "partial": layer.shares and layer.shares.width,
            "raw": layer.in_dim,
        }[plan.kind]
        if plan.kind == "partial":
            # One sum of each owner of what a destination reads.
            degrees = np.diff(plan.block.indptr)
            edges = zip(np.repeat(np.arange(len(degrees)), degrees), plan.block.indices, strict=True)
            reads = {(src[source], int(i)) for i, source in edges} | {(src[i], i) for i in range(plan.block.n_dst)}
            asked = [owner for owner, _ in {(int(home[vertex]), i) for vertex, i in reads if vertex not in rows}]
            if plan.by_kind and plan.by_kind.mixed:
                # Or fewer items, where a projected row serves several destinations.
                items = np.repeat(np.arange(communicator.size), plan.by_kind.received_counts).tolist()
                assert len(items) <= len(asked), "rows are taken where they spare sums"
                asked = items
        activations += _there_and_back(asked, communicator) * width * size
        if number:
            here = {int(vertex) for vertex in graph.plans[number - 1].block.dst}
            asked = [int(home[vertex]) for vertex in rows - here]
            activations += _there_and_back(asked, communicator) * layer.in_dim * size
            # Held one owner at a time, rows that were normalised or attended to come again for the gradients.
            if minibatch.graph.by_owner and (layer.norm or type(layer).__name__ == "GATLayer"):
                activations += _there(asked, communicator) * layer.in_dim * size
    return {**_raw(set(graph.fed.tolist()), loaded, home), "activations": activations}


def _named_to_owners(minibatch, communicator) -> dict[str, int]:
    """For each layer what three ways to feed it would cost, then ids of rows, and of what comes in another way."""
    ids = control = 0
    for plan in minibatch.graph.plans:
        asked = [each for each in (plan.rows, plan.by_kind) if each is not None]
        ids += ID * sum(int(each.received_counts.sum()) for each in asked)
        lists = 1 + (plan.by_kind is not None) + (plan.kind == "partial")
        control += (3 + lists) * _header(communicator)
    return {"ids": ids, "control": control}


def _there_and_back(owners: list[int], communicator) -> int:
    """Rows that this rank sends, where it asks one of each of `owners`, and gradients go back. Collective."""
    return len(owners) + _there(owners, communicator)


def _there(owners: list[int], communicator) -> int:
    """Rows that this rank sends, where every rank asks one of each of its `owners`. Collective."""
    return sum(each.count(communicator.rank) for each in communicator.comm.allgather(owners))


def width_of(parameters) -> int:
    """Bytes of a number."""
    return parameters.values.element_size()


def shared_numbers(loaded, engine) -> int:
    """Numbers of the gradient that are summed over ranks: all, but for p3's first weights."""
    layer, split = loaded.ctx.model.layers[0], 0
    if engine.config.name == "p3":
        split = sum(each.weight.numel() for each in input_projections(layer))
    return loaded.ctx.parameters.count - split


def _mixed(minibatch, loaded, home: np.ndarray) -> dict[str, int]:
    """Each item is named once, a row of the layer's width comes, and its gradient returns; shares where lists are."""
    communicator, layer = loaded.ctx.communicator, loaded.ctx.model.layers[0]
    if loaded.ctx.sampler.sharded:
        return _partial(minibatch, loaded, home)
    counts: dict[str, int] = defaultdict(int)
    for micro_batch in minibatch.micro_batches:
        asked = exchange_mode("mixed", loaded.ctx).items(micro_batch.blocks[-1]).counts
        answered = sum(int(counts[communicator.rank]) for counts in communicator.comm.allgather(asked))
        counts["ids"] += ID * int(asked.sum())
        counts["activations"] += (answered + int(asked.sum())) * layer.shares.width * layer.dtype.itemsize
        counts["control"] += _header(communicator)
        counts["remote"] += int(asked.sum())
    local = _partial(minibatch, loaded, home)
    return {**counts, "local": local["local"]}


INPUT = {"ring": _ring, "columns": _columns, "raw": _raw_of_blocks, "projected": _projected, "partial": _partial}
INPUT["sums"], INPUT["mixed"] = _sums, _mixed
INPUT["layer by layer"] = _layer_by_layer


@cache
def label_bytes(part: Path) -> int:
    """Bytes of a label, as it stands in the file of a part."""
    with h5py.File(part, "r", locking=False) as file:
        return file["labels"].id.get_storage_size() // len(file["labels"])


def feature_bytes(dataset) -> np.ndarray:
    """int64[n]: bytes of the row of each vertex that may cross ranks; of sparse ones, columns and values."""
    return _feature_bytes(tuple(dataset.part_path(part) for part in range(dataset.parts)))


@cache
def _feature_bytes(paths: tuple[Path, ...]) -> np.ndarray:
    sizes = []
    for path in paths:
        with h5py.File(path, "r", locking=False) as file:
            features = file["features"]
            if isinstance(features, h5py.Dataset):
                sizes.append(np.full(len(features), features.id.get_storage_size() // len(features)))
            else:
                sizes.append(np.diff(features["indptr"]) * (4 + features["data"].dtype.itemsize))
    return np.concatenate(sizes)


def _header(communicator) -> int:
    """A request is preceded by how many rows are wanted of every other rank."""
    return 8 * (communicator.size - 1)


def _request(wanted: set[int], communicator, home: np.ndarray) -> tuple[int, int]:
    """How many of `wanted` vertices this rank must ask others for, and how many others ask of it. Collective."""
    away = [vertex for vertex in wanted if home[vertex] != communicator.rank]
    return len(away), sum(
        int(home[vertex]) == communicator.rank for each in communicator.comm.allgather(away) for vertex in each
    )


def home_ranks(dataset, size: int) -> np.ndarray:
    """The rank that is home to each vertex: part p of P is on rank p * size // P."""
    return np.repeat([part * size // dataset.parts for part in range(dataset.parts)], np.diff(dataset.offsets))


def words_of_schedules(schedule, engine) -> int:
    """Words of 8 bytes that rank 0 sends: to each rank what it reads, its own cells and those that it labels."""
    ranks, offset = range(1, schedule.ranks), engine.placement.strategy.labels_from
    if engine.preparation.reads_whole_schedules or engine.ctx.sampler.family != LOCAL:
        read = [list(range(schedule.ranks)) for _ in ranks]
        return sum(8 + _cell_words(schedule, each, [each]) for each in read)
    read = [list(dict.fromkeys([rank, (rank + offset) % schedule.ranks])) for rank in range(schedule.ranks)]
    return sum(8 + len(read[rank]) + _cell_words(schedule, read[rank], read) for rank in ranks)


def _cell_words(schedule, read: list[int], read_by_all: list[list[int]]) -> int:
    """Words of four lists of numbers about the cells of the ranks `read`, each as wide as the largest of all needs."""
    lists = [_lists_of(schedule, each) for each in read_by_all]
    largest = [max(max(each, default=0) for each in column) for column in zip(*lists, strict=True)]
    widths = [next(width for width in (1, 2, 4, 8) if each < 256**width) for each in largest]
    return sum(-(-len(each) * width // 8) for each, width in zip(_lists_of(schedule, read), widths, strict=True))


def _lists_of(schedule, read: list[int]) -> tuple[list[int], ...]:
    cells = [schedule.cell(rank, step).tolist() for rank in read for step in range(schedule.time_steps)]
    models = [schedule.model_of(rank, step) for rank in read for step in range(schedule.time_steps)]
    gaps = [gap for cell in cells for gap in (0, *(b - a for a, b in pairwise(cell)))[: len(cell)]]
    return [len(cell) for cell in cells], models, [cell[0] for cell in cells if cell], gaps
