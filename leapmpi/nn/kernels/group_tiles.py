"""Products of the rows of groups of edges, made tile by tile and used while they are in cache, in single precision.

A group is the edges of one relation to one destination. Attention multiplies a row of each group by matrices of its
relation, one for each head, and meets the result at the edges of the group: in scores, in sums of source rows, in
gradients. A matrix of these results would be as large as all groups x heads x columns; here a tile has a few groups.

For all functions: z float32[sources, columns], columns a multiple of 16; `weight` float32[n, heads, k, in, 16] holds
slices of matrices from rows of `in` to 16 k columns, for n relations that have groups; `factor` is float32[edges,
heads]. All are C-contiguous. One thread runs them.
"""

from __future__ import annotations

from collections.abc import Callable
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
def _meet(first, end, from_group, to_group, indptr, addresses, destination, columns, x, weight, by_edge, adds):
    """Compute tiles `first` to `end` (exclusive) of a relation of `products_by_tile`, or `add_tiles` if it `adds`."""
    heads, slices, width = weight.shape[0], weight.shape[1], weight.shape[2]
    tile, rows = np.empty((heads, ROWS, columns), np.float32), np.empty(ROWS, np.int64)
    tile_at, x_at, weight_at = np.int64(tile.ctypes.data), np.int64(x.ctypes.data), np.int64(weight.ctypes.data)
    by_edge_at = np.int64(by_edge.ctypes.data)
    for number in range(first, end):
        begin = from_group + ROWS * number
        stop = min(begin + ROWS, to_group)
        _set_tile(begin, stop, destination, x_at, weight_at, slices, width, heads, rows, tile_at)
        for i in range(stop - begin):
            # Rows of the next tile come from anywhere in memory: they are fetched while this tile's edges are computed.
            later = min(begin + ROWS + i, to_group - 1)
            prefetch_row(x_at + 4 * x.shape[1] * destination[later], 4 * x.shape[1])
            for e in range(indptr[begin + i], indptr[begin + i + 1]):
                prefetch_edge(addresses, e, columns)
                row, step = tile_at + 4 * columns * i, 4 * columns * ROWS
                if adds:
                    add_heads_to(addresses[e], row, step, by_edge_at + 4 * heads * e, heads, columns)
                else:
                    for h in range(heads):
                        by_edge[e, h] = value_of_edge(addresses[e], row + step * h, columns)


@compiled
def _sum(first, end, from_group, to_group, indptr, addresses, destination, columns, factor, weight, sums, x, outer):
    """Compute tiles `first` to `end` (exclusive) of a relation of `sums_by_tile`."""
    heads, slices, result = factor.shape[1], weight.shape[1], sums.shape[1] // factor.shape[1]
    width, height = x.shape[1] // heads, COLUMNS * slices
    tile, rows = np.empty((heads, ROWS, columns), np.float32), np.empty(ROWS, np.int64)
    products, given = np.empty((ROWS, height), np.float32), np.zeros((ROWS, outer.shape[1]), np.float32)
    none = np.empty((0, COLUMNS), np.float32)
    tile_at, products_at = np.int64(tile.ctypes.data), np.int64(products.ctypes.data)
    rows_at, sums_at = np.int64(rows.ctypes.data), np.int64(sums.ctypes.data)
    weight_at, x_at, given_at = np.int64(weight.ctypes.data), np.int64(x.ctypes.data), np.int64(given.ctypes.data)
    for number in range(first, end):
        begin = from_group + ROWS * number
        stop = min(begin + ROWS, to_group)
        # Sums of edges take as long as rows of destinations need to come into cache.
        for i in range(ROWS):
            # Tiles are always whole: the last group fills the rows that are left, whose products are not read.
            group = min(begin + i, stop - 1)
            if slices:
                prefetch_row(sums_at + 4 * sums.shape[1] * destination[group], 4 * sums.shape[1])
            if width:
                prefetch_row(x_at + 4 * x.shape[1] * destination[group], 4 * x.shape[1])
            for h in range(heads):
                place = tile_at + 4 * columns * (ROWS * h + i)
                sum_of_edges(indptr[group], indptr[group + 1], addresses, factor, h, columns, place)
        for h in range(heads):
            for i in range(ROWS):
                rows[i] = tile_at + 4 * columns * (ROWS * h + i)
            if slices:
                of_head = weight_at + 4 * h * height * columns
                set_row_of_tiles(rows_at, rows_at, 4, of_head, products_at, height, columns)
                for i in range(stop - begin):
                    at = sums_at + 4 * result * (heads * destination[begin + i] + h)
                    add_row(at, products_at + 4 * height * i, np.float32(1), result)
            if width:
                for i in range(stop - begin):
                    row = x_at + 4 * width * (heads * destination[begin + i] + h)
                    copy_row(given_at + 4 * given.shape[1] * i, row, width)
                add_columns(rows, 0, 0, given[: stop - begin], outer[h], none, 0, columns, 0)


def products_by_tile(lists: GroupLists, z: np.ndarray, x: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """Set out[e, h] to the product of z[u] and weight[h] x[h], where e goes from u to the destination with row x.

    x float32[destinations, heads x in]; out float32[edges, heads]; the matrices have as many rows as z has columns.
    """
    _by_relation(_meet, lists, z, lambda n: (x, weight[n], out, False))


def add_tiles(lists: GroupLists, out: np.ndarray, x: np.ndarray, weight: np.ndarray, factor: np.ndarray) -> None:
    """Add factor[e, h] weight[h] x[h] to out[u], edge by edge, where e goes from u to the destination with row x.

    x float32[destinations, heads x in]; out float32[sources, columns]; the matrices have as many rows as out columns.
    """
    _by_relation(_meet, lists, out, lambda n: (x, weight[n], factor, True))


def sums_by_tile(
    lists: GroupLists,
    z: np.ndarray,
    factor: np.ndarray,
    weight: np.ndarray,
    sums: np.ndarray,
    x: np.ndarray,
    outer: np.ndarray,
) -> None:
    """Sum s[h] = factor[e, h] z[u] over the edges e of each group, from u; add weight[h] s[h] to its row of `sums`.

    sums: float32[destinations, heads x out], `in` of weight is the number of columns of z; without slices nothing is
    multiplied. Add too the products of each element of x[h] with s[h] to outer[n, h], where x is the row of the
    destination: x float32[destinations, heads x width]; outer float32[n, heads, `outer_rows(width)`, columns]. Without
    columns of x nothing is added.
    """
    _by_relation(_sum, lists, z, lambda n: (factor, weight[n], sums, x, outer[n]))


def outer_rows(width: int) -> int:
    """Return the rows of `outer` for so many elements of x: whole tiles."""
    return width + -width % OUTER_ROWS


def _by_relation(
    kernel: Callable[..., None],
    lists: GroupLists,
    z: np.ndarray,
    operands: Callable[[int], tuple[np.ndarray | bool, ...]],
) -> None:
    """Run `kernel` on the tiles of each relation, one after the other."""
    addresses = addresses_of_edges(lists.indices, z)
    for n, (first, end) in enumerate(pairwise(lists.bounds.tolist())):
        given = first, end, lists.indptr, addresses, lists.destination, z.shape[1], *operands(n)
        share_rows(kernel, -(-(end - first) // ROWS), *given, least=_LEAST_TILES)
