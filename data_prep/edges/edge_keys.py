"""Kernels of the edge sort: edges as 64-bit keys, which are scattered to buckets of rows and sorted within them.

A key holds the row within its bucket, the column, and in the lowest bit whether it is a reverse edge. `key_shift` is
the number of bits of the column and that bit; a bucket has 2**bucket_bits rows.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def _key(row, column, backwards, mask, shift):
    return (np.uint64(row & mask) << np.uint64(shift)) | (np.uint64(column) << np.uint64(1)) | np.uint64(backwards)


@compiled
def scatter_keys(edges, bucket_bits, key_shift, directed, starts, keys):
    """Write the keys of `edges` to `keys`, grouped by bucket; `starts` [buckets + 1] says where. Returns the loops."""
    # Count the keys of each bucket; they begin where those of the buckets before end.
    loops = 0
    mask = (np.int64(1) << bucket_bits) - 1
    for e in range(edges.shape[1]):
        source, destination = np.int64(edges[0, e]), np.int64(edges[1, e])
        if source == destination:
            loops += 1
        else:
            starts[(destination >> bucket_bits) + 1] += 1
            if not directed:
                starts[(source >> bucket_bits) + 1] += 1
    for b in range(len(starts) - 1):
        starts[b + 1] += starts[b]

    # Write each key at the next free place of its bucket.
    place = starts[:-1].copy()
    for e in range(edges.shape[1]):
        source, destination = np.int64(edges[0, e]), np.int64(edges[1, e])
        if source != destination:
            bucket = destination >> bucket_bits
            keys[place[bucket]] = _key(destination, source, 0, mask, key_shift)
            place[bucket] += 1
            if not directed:
                bucket = source >> bucket_bits
                keys[place[bucket]] = _key(source, destination, 1, mask, key_shift)
                place[bucket] += 1
    return loops


@compiled
def count_rows(keys, key_shift, counts):
    """Add to counts[row], int64[rows], the number of keys of each row."""
    for key in keys:
        counts[key >> np.uint64(key_shift)] += 1


@compiled
def take_rows(keys, key_shift, low, high, out, filled):
    """Append the keys of rows low ... high - 1 to `out`; returns how full it is then."""
    for key in keys:
        if low <= np.int64(key >> np.uint64(key_shift)) < high:
            out[filled] = key
            filled += 1
    return filled


@compiled
def sort_rows(keys, key_shift, low, indptr, columns):
    """Sort keys of the rows low ... into `columns` by row, without repeats, and their bounds into `indptr`.

    Returns how many columns are left, and how many of them an edge as read leads to.
    """
    # A counting sort by row.
    shift = np.uint64(key_shift)
    column_mask = (np.uint64(1) << shift) - np.uint64(1)
    for key in keys:
        indptr[np.int64(key >> shift) - low + 1] += 1
    for row in range(len(indptr) - 1):
        indptr[row + 1] += indptr[row]
    place = indptr[:-1].copy()
    for key in keys:
        row = np.int64(key >> shift) - low
        columns[place[row]] = key & column_mask
        place[row] += 1

    # Sort within each row and drop repeats, in place: what is written never overtakes what is read.
    written, distinct, start = 0, 0, indptr[0]
    for row in range(len(indptr) - 1):
        stop = indptr[row + 1]
        columns[start:stop].sort()
        first = written
        for e in range(start, stop):
            column, backwards = columns[e] >> 1, columns[e] & 1
            if written == first or np.int64(columns[written - 1]) != np.int64(column):
                columns[written] = column
                written += 1
                # The forward edge of a pair comes first.
                distinct += 1 - np.int64(backwards)
        start = stop
        indptr[row + 1] = written
    return written, distinct


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Sort `numbers` [k] in ascending order, each once; far faster than np.unique, which hashes."""
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]]
