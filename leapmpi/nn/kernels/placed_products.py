"""Products of single-precision rows that are used tile by tile while they are in cache: no matrix of them is made.

Tiles are those of gemm_tile.py. The products of a tile are written to rows of a matrix, or added to them. Or they are
added to the source rows of groups of edges: the gradient of weighted sums.
"""

from __future__ import annotations

import numpy as np

from leapmpi.nn.kernels.gemm_tile import ROWS, set_row_of_tiles
from leapmpi.nn.kernels.row_sums import add_row, copy_row, prefetch_row
from leapmpi.nn.kernels.simd import COLUMNS
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_LEAST_TILES = 8
"""Fewer tiles are not worth another thread."""


@compiled
def _place_products(first, end, addresses, count, weight, places, adds, out):
    """Compute tiles `first` to `end` (exclusive) of `place_products`."""
    height, width, columns = COLUMNS * len(weight), weight.shape[1], out.shape[1]
    x_at, weight_at = np.int64(addresses.ctypes.data), np.int64(weight.ctypes.data)
    tile_of_sums = np.empty((ROWS, height), np.float32)
    sums_at, out_at = np.int64(tile_of_sums.ctypes.data), np.int64(out.ctypes.data)
    for tile in range(first, end):
        begin, stop = ROWS * tile, min(ROWS * tile + ROWS, count)
        # Places are far apart: their rows are fetched while the tile is computed.
        for i in range(begin, stop):
            prefetch_row(out_at + 4 * columns * places[i], 4 * columns)
        later = x_at + 8 * ROWS * min(tile + 1, len(addresses) // ROWS - 1)
        set_row_of_tiles(x_at + 8 * begin, later, 4, weight_at, sums_at, height, width)
        for i in range(begin, stop):
            to, row = out_at + 4 * columns * places[i], sums_at + 4 * height * (i - begin)
            if adds:
                add_row(to, row, np.float32(1), columns)
            else:
                copy_row(to, row, columns)


def place_products(
    addresses: np.ndarray, count: int, weight: np.ndarray, places: np.ndarray, adds: bool, out: np.ndarray
) -> None:
    """Write x[i] weight to row places[i] of out[n, h], or add it with `adds`, for each i < count.

    x is given by int64 addresses, a multiple of ROWS of them, the last one repeated; weight float32[k, in, 16] holds
    slices of columns, 16 k not below h; places int64[count] are distinct. Threads share the rows.
    """
    share_rows(_place_products, len(addresses) // ROWS, addresses, count, weight, places, adds, out, least=_LEAST_TILES)


@compiled
def _add_at_sources(first, end, addresses, count, weight, indptr, indices, factors, out, begun):
    """Compute tiles `first` to `end` (exclusive) of `add_products_at_sources`."""
    height, width, columns = COLUMNS * len(weight), weight.shape[1], out.shape[1]
    x_at, weight_at = np.int64(addresses.ctypes.data), np.int64(weight.ctypes.data)
    tile_of_sums, zeros = np.empty((ROWS, height), np.float32), np.zeros(columns, np.float32)
    sums_at, out_at, zeros_at = (
        np.int64(tile_of_sums.ctypes.data),
        np.int64(out.ctypes.data),
        np.int64(zeros.ctypes.data),
    )
    for tile in range(first, end):
        begin, stop = ROWS * tile, min(ROWS * tile + ROWS, count)
        # Rows of sources are far apart: they are fetched while the tile is computed.
        for e in range(indptr[begin], indptr[stop]):
            prefetch_row(out_at + 4 * columns * np.int64(indices[e]), 4 * columns)
        later = x_at + 8 * ROWS * min(tile + 1, len(addresses) // ROWS - 1)
        set_row_of_tiles(x_at + 8 * begin, later, 4, weight_at, sums_at, height, width)
        for i in range(begin, stop):
            row_at = sums_at + 4 * height * (i - begin)
            for e in range(indptr[i], indptr[i + 1]):
                source = np.int64(indices[e])
                to = out_at + 4 * columns * source
                # Zeros are written once the row is in cache: a pass over all rows before would fetch them twice.
                if not begun[source]:
                    copy_row(to, zeros_at, columns)
                    begun[source] = True
                add_row(to, row_at, factors[e], columns)


def add_products_at_sources(
    addresses: np.ndarray,
    count: int,
    weight: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
    begun: np.ndarray,
) -> None:
    """Add factors[e] x[i] weight to row indices[e] of `out` for each edge e of group i < count, in the order of edges.

    Operands are those of `place_products`. indptr int64[count + 1], indices int32 or int64 and factors float32 list the
    edges of groups. Rows of `out` that are not `begun`, bool[sources], count as zeros, and are begun then. For one
    thread: several would add to the same rows.
    """
    given = indptr, indices, factors, out, begun
    share_rows(_add_at_sources, len(addresses) // ROWS, addresses, count, weight, *given, least=_LEAST_TILES)


@compiled
def clear_others(out, begun):
    """Set the rows of float32[n, h] `out` to zero that are not `begun`, bool[n]."""
    for i in range(len(out)):
        if not begun[i]:
            for f in range(out.shape[1]):
                out[i, f] = 0
