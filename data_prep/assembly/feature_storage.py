"""How features are stored: dense rows, or the entries that are not zero, whichever suits them."""

from __future__ import annotations

import numpy as np

from data_prep.assembly.feature_rows import FeatureRows
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.row_blocks import BLOCK_BYTES, row_ranges
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import ConfigError

SPARSE_BELOW = 0.05
"""Share of entries that are not zero below which `auto` stores features sparse; measured, see README.md."""

_WIDTH_FROM = 64
"""Rows of fewer columns gain nothing by sparse storage."""

_SAMPLED_ROWS, _SAMPLED_BYTES = 1000, 2**26
_WIDEST = 2**31


def stored(
    rows: FeatureRows, storage: str, workspace: Workspace, progress: Progress = SILENT
) -> FeatureRows | SparseFeatures:
    """`rows` in the form in which they are written: dense rows, or sparse in temporary files of `workspace`.

    storage: auto, dense or sparse. Raises DataError for a value that is no finite number, ConfigError for too many
    columns.
    """
    if storage == "dense" or (storage == "auto" and not suits_sparse(rows)):
        return rows
    if rows.shape[1] >= _WIDEST:
        raise ConfigError(
            f"--feature-storage: columns of sparse features are numbered in 31 bits, not {rows.shape[1]:,}"
        )
    return _compressed(rows, workspace, progress)


def suits_sparse(rows: FeatureRows) -> bool:
    """Whether so few entries are not zero that sparse storage is smaller and faster; dense sources are sampled."""
    sampled = max(1, min(_SAMPLED_ROWS, _SAMPLED_BYTES // rows.source_row_bytes))
    return rows.shape[1] >= _WIDTH_FROM and rows.density(sampled) < SPARSE_BELOW


def _compressed(rows: FeatureRows, workspace: Workspace, progress: Progress) -> SparseFeatures:
    """The entries of `rows` in temporary files, written block by block."""
    progress.start(len(rows), "rows of features")
    indptr = np.zeros(len(rows) + 1, np.int64)
    columns, values = workspace.path("feature-columns"), workspace.path("feature-values")
    count = 0
    with columns.open("wb") as column_file, values.open("wb") as value_file:
        for start, stop in row_ranges(len(rows), rows.source_row_bytes, BLOCK_BYTES):
            block = rows.entries(slice(start, stop))
            indptr[start + 1 : stop + 1] = count + block.indptr[1:]
            count = int(indptr[stop])
            column_file.write(block.indices.data)
            value_file.write(block.data.data)
            progress.reach(stop)
    return SparseFeatures(
        indptr, workspace.map(columns, "<i4", (count,)), workspace.map(values, rows.dtype, (count,)), rows.shape[1]
    )
