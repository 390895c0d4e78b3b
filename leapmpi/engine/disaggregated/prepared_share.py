"""One share of a mini-batch as arrays that cross ranks: all that a compute rank needs.

A matrix of rows, or of sums and rows, travels by itself. Everything else is small, and packed into one array of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leapmpi.sampling.block import Block

ROWS, ROWS_IN_PLACE, SUMS, SPARSE_ROWS, TYPED_ROWS = range(5)
"""Content of the matrix: rows of the first layer's sources, copied or read in place on a CPU; sums; or nothing.

Below its sums are the rows of its destinations if they are read. It is empty if rows are sparse, or of several types.
"""

_ARRAYS = (
    *("indptr", "indices", "src_original", "src_degree", "weight", "edge_weight", "drawn_weight", "src_weight_sum"),
    "relation",
)
"""Arrays of a block that travel; the numbers of its sources do not."""

_ALIGNED = 8


@dataclass
class PreparedShare:
    """One share of a mini-batch, but for its matrix.

    blocks: from the roots outward, without that of the first layer where `form` is SUMS. labels: int64[n] or
    float[n, columns]. weights: one float64 for all roots, or float64[n]. edge_features: by block, float[edges, Fe],
    None where no layer reads them. rows: of sparse rows indptr, indices and values; of typed ones their types and
    places, and the features by type, None without.
    """

    form: int
    blocks: list[Block]
    labels: np.ndarray
    weights: float | np.ndarray
    edge_features: list[np.ndarray] | None = None
    rows: tuple[np.ndarray | None, ...] = ()

    def to_bytes(self) -> np.ndarray:
        """Return uint8[k], for `from_bytes`."""
        numbers = [self.form, len(self.blocks), isinstance(self.weights, float), self.edge_features is not None]
        for block in self.blocks:
            numbers += [block.hop, block.n_dst, block.n_src]
        arrays = [np.array(numbers, np.int64), self.labels, np.atleast_1d(np.asarray(self.weights, np.float64))]
        for block in self.blocks:
            arrays += [getattr(block, name) for name in _ARRAYS]
        return packed([*arrays, *(self.edge_features or ()), *self.rows])

    @classmethod
    def from_bytes(cls, data: np.ndarray) -> PreparedShare:
        """Return the share in `data`; its arrays are views."""
        numbers, labels, weights, *rest = unpacked(data)
        form, count, one_weight, has_features = numbers[:4].tolist()
        blocks = []
        for number in range(count):
            hop, n_dst, n_src = numbers[4 + 3 * number : 7 + 3 * number].tolist()
            arrays = dict(zip(_ARRAYS, rest[number * len(_ARRAYS) :], strict=False))
            # Nobody looks a vertex up here: its number is of no use.
            blocks.append(Block(hop, n_dst, np.broadcast_to(np.int64(-1), n_src), **arrays))
        others = rest[count * len(_ARRAYS) :]
        features = others[:count] if has_features else None
        rows = tuple(others[count if has_features else 0 :])
        return cls(form, blocks, labels, float(weights[0]) if one_weight else weights, features, rows)


def packed(arrays: Sequence[np.ndarray | None]) -> np.ndarray:
    """Pack `arrays` into one uint8[k], each at a multiple of eight bytes: types and shapes first, then contents."""
    heading = [len(arrays)]
    for each in arrays:
        heading += [-1, 0] if each is None else [ord(each.dtype.char), each.ndim, *each.shape]
    parts = [np.array([len(heading), *heading], np.int64), *(each for each in arrays if each is not None)]
    # Aligned, so that the receiver views its arrays in place, without copies.
    ends = np.cumsum([-(-part.nbytes // _ALIGNED) * _ALIGNED for part in parts])
    out = np.empty(int(ends[-1]), np.uint8)
    for part, end, begin in zip(parts, ends, [0, *ends[:-1]], strict=True):
        out[begin : begin + part.nbytes] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        out[begin + part.nbytes : end] = 0
    return out


def unpacked(data: np.ndarray) -> list[Any]:
    """Return the arrays that `packed` put into `data`, as views of it, and None."""
    length = int(data[:_ALIGNED].view(np.int64)[0])
    heading = data[_ALIGNED : _ALIGNED * (1 + length)].view(np.int64).tolist()
    # Every array begins at a multiple of _ALIGNED bytes, so that views of any type are valid.
    begin, place = _ALIGNED * (1 + length), 1
    found: list[np.ndarray | None] = []
    for _ in range(heading[0]):
        code, dimensions = heading[place : place + 2]
        shape = heading[place + 2 : place + 2 + dimensions]
        place += 2 + dimensions
        if code < 0:
            found.append(None)
            continue
        dtype = np.dtype(chr(code))
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        found.append(data[begin : begin + size].view(dtype).reshape(shape))
        begin += -(-size // _ALIGNED) * _ALIGNED
    return found
