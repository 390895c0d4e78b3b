"""Products of the rows of groups of edges, made tile by tile and used while they are in cache, in single precision.

A group is the edges of one relation to one destination. Attention multiplies a row of each group by matrices of its
relation, one for each head, and meets the result at the edges of the group: in scores, in sums of source rows, in
gradients. A matrix of these results would be as large as all groups x heads x columns; here a tile has a few groups.

For all functions: z float32[sources, columns], columns a multiple of 16; `weight` float32[n, heads, k, in, 16] holds
slices of matrices from rows of `in` to 16 k columns, for n relations that have groups; `factor` is float32[edges,
heads]. All are C-contiguous. One thread runs them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from leapmpi.nn.kernels.gemm_tile import OUTER_ROWS, ROWS, add_columns, set_row_of_tiles
from leapmpi.nn.kernels.head_rows import (
    add_heads_to,
    addresses_of_edges,
    prefetch_edge,
    sum_of_edges,
    value_of_edge,
)
from leapmpi.nn.kernels.row_sums import add_row, copy_row, prefetch_row
from leapmpi.nn.kernels.simd import COLUMNS
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_LEAST_TILES = 8
"""Fewer tiles are not worth a look at other work."""


class GroupLists(NamedTuple):
    """The edges of groups.

    bounds: int64[n + 1], the first group of each of n relations, and the number of all; indptr: int64[groups + 1] and
    indices: int32 or int64[edges], the sources of the edges of each group; destination: int64[groups].
    """

    bounds: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    destination: np.ndarray


@compiled
def _set_tile(begin, stop, destination, x_at, weight_at, slices, width, heads, rows, tile_at):
    """Multiply the rows of the destinations of groups `begin` to `stop` (exclusive): tile[heads, ROWS, 16 slices]."""
    rows_at, height = np.int64(rows.ctypes.data), COLUMNS * slices
    for h in range(heads):
        for i in range(ROWS):
            rows[i] = x_at + 4 * width * (heads * destination[min(begin + i, stop - 1)] + h)
        weight_of_head = weight_at + 4 * h * height * width
        set_row_of_tiles(rows_at, rows_at, 4, weight_of_head, tile_at + 4 * h * ROWS * height, height, width)


@compiled
def _walk(first, end, from_group, to_group, indptr, addresses, destination, columns, x, factor, weight, by_edge, offset,
          back, sums, outer):  # fmt: skip
    """Compute tiles `first` to `end` (exclusive) of a relation of `walk`, whose at_sources is `offset` bytes from z."""
    heads, slices, height = weight.shape[0], weight.shape[1], COLUMNS * back.shape[1]
    width, result = x.shape[1] // heads, sums.shape[1] // heads
    tile, rows = np.empty((heads, ROWS, columns), np.float32), np.empty(ROWS, np.int64)
    totals, products = np.empty((heads, ROWS, columns), np.float32), np.empty((ROWS, height), np.float32)
    given, none = np.zeros((ROWS, outer.shape[1]), np.float32), np.empty((0, COLUMNS), np.float32)
    tile_at, totals_at, rows_at = np.int64(tile.ctypes.data), np.int64(totals.ctypes.data), np.int64(rows.ctypes.data)
    products_at, given_at = np.int64(products.ctypes.data), np.int64(given.ctypes.data)
    x_at, sums_at, factor_at = np.int64(x.ctypes.data), np.int64(sums.ctypes.data), np.int64(factor.ctypes.data)
    weight_at, back_at = np.int64(weight.ctypes.data), np.int64(back.ctypes.data)
    step, adds_up = 4 * columns * ROWS, height > 0 or outer.shape[1] > 0
    for number in range(first, end):
        begin = from_group + ROWS * number
        stop = min(begin + ROWS, to_group)
        if slices:
            _set_tile(begin, stop, destination, x_at, weight_at, slices, width, heads, rows, tile_at)
        for i in range(stop - begin):
            # Rows come from anywhere in memory: those that are read later are fetched while edges are computed.
            later = min(begin + ROWS + i, to_group - 1)
            prefetch_row(x_at + 4 * x.shape[1] * destination[later], 4 * x.shape[1])
            prefetch_row(sums_at + 4 * sums.shape[1] * destination[begin + i], 4 * sums.shape[1])
            row, edges_from, edges_to = tile_at + 4 * columns * i, indptr[begin + i], indptr[begin + i + 1]
            for e in range(edges_from, edges_to if slices else edges_from):
                if by_edge.shape[1]:
                    prefetch_edge(addresses, e, 0, columns)
                    for h in range(heads):
                        by_edge[e, h] = value_of_edge(addresses[e], row + step * h, columns)
                if offset:
                    prefetch_edge(addresses, e, offset, columns)
                    add_heads_to(addresses[e] + offset, row, step, factor_at + 4 * heads * e, heads, columns)
            for h in range(heads if adds_up else 0):
                place = totals_at + 4 * columns * (ROWS * h + i)
                sum_of_edges(edges_from, edges_to, addresses, factor, h, columns, place)

        for h in range(heads if adds_up else 0):
            # Tiles are always whole: the last row fills those that are left, whose products are not read.
            for i in range(ROWS):
                rows[i] = totals_at + 4 * columns * (ROWS * h + min(i, stop - begin - 1))
            if height:
                set_row_of_tiles(rows_at, rows_at, 4, back_at + 4 * h * height * columns, products_at, height, columns)
                for i in range(stop - begin):
                    at = sums_at + 4 * result * (heads * destination[begin + i] + h)
                    add_row(at, products_at + 4 * height * i, np.float32(1), result)
            if outer.shape[1]:
                for i in range(stop - begin):
                    row = x_at + 4 * width * (heads * destination[begin + i] + h)
                    copy_row(given_at + 4 * given.shape[1] * i, row, width)
                add_columns(rows, 0, 0, given[: stop - begin], outer[h], none, 0, columns, 0)


def walk(
    lists: GroupLists,
    z: np.ndarray,
    x: np.ndarray | None,
    factor: np.ndarray | None,
    weight: np.ndarray | None,
    by_edge: np.ndarray | None = None,
    at_sources: np.ndarray | None = None,
    back: np.ndarray | None = None,
    sums: np.ndarray | None = None,
    outer: np.ndarray | None = None,
) -> None:
    """Compute all results that are given, in one walk through the edges e of each group, from source u.

    With t[h] = weight[h] x[h], where x float32[destinations, heads x in] has the row of the group's destination:
    by_edge[e, h], float32[edges, heads], is set to the product of t[h] and z[u]; factor[e, h] t[h] is added to
    at_sources[u], of the shape of z, edge by edge. With s[h], the sum of factor[e, h] z[u] over e: back[h] s[h] is
    added to the destination's row of sums, float32[destinations, heads x out]; the products of elements of x[h] and
    s[h] are added to outer[n, h], float32[n, heads, `outer_rows(in)`, columns]. `weight` makes as many columns as z
    has, `back` reads as many; each is needed where its products are.
    """
    heads = next(each.shape[1] for each in (weight, back, outer) if each is not None)
    relations, columns = len(lists.bounds) - 1, z.shape[1]
    no_weight = np.empty((relations, heads, 0, 0, COLUMNS), np.float32)
    no_rows = np.empty((0, 0), np.float32)
    x, factor, by_edge, sums = (no_rows if each is None else each for each in (x, factor, by_edge, sums))
    weight, back = (no_weight if each is None else each for each in (weight, back))
    outer = np.empty((relations, heads, 0, columns), np.float32) if outer is None else outer
    offset = 0 if at_sources is None else at_sources.ctypes.data - z.ctypes.data
    addresses = addresses_of_edges(lists.indices, z)
    for n, (first, end) in enumerate(pairwise(lists.bounds.tolist())):
        given = first, end, lists.indptr, addresses, lists.destination, columns, x, factor
        results = weight[n], by_edge, offset, back[n], sums, outer[n]
        share_rows(_walk, -(-(end - first) // ROWS), *given, *results, least=_LEAST_TILES)


def outer_rows(width: int) -> int:
    """Return the rows of `outer` for so many elements of x: whole tiles."""
    return width + -width % OUTER_ROWS
