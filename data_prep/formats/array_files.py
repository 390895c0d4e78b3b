"""One array from one file: .npy, a text table, or a sparse matrix in .npz as scipy.sparse.save_npz writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import ReadOptions, SparseRows
from data_prep.formats.npz_reader import MAPPED_FROM, NpzFile
from data_prep.formats.numeric_text import is_text_table, read_numbers
from data_prep.workspace import Workspace
from leapmpi.errors import DataError


def existing(path: Path) -> Path:
    """`path` again. Raises DataError when nothing is there."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    return path


def read_npy(path: Path) -> np.ndarray:
    """The array in the .npy file `path`, a large one mapped.

    Raises DataError when it is damaged or holds Python objects.
    """
    try:
        mapped = existing(path).stat().st_size >= MAPPED_FROM
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (ValueError, EOFError) as error:
        if "Object arrays" in str(error):
            raise DataError(f"{path} holds Python objects, not numbers; save it as a plain array") from error
        raise DataError(f"{path} is truncated or not an .npy file ({error})") from error


def read_features(path: Path, workspace: Workspace | None = None) -> np.ndarray | SparseRows:
    """Features [n, F] from `path`, those of a table in a temporary file of `workspace`.

    Raises DataError when its kind is unknown or it is damaged.
    """
    if path.suffix == ".npz":
        return read_sparse(path, workspace)
    return _read(path, np.float32, ".npy, .npz (scipy.sparse.save_npz), .csv, .tsv or .txt", workspace)


def read_labels(path: Path) -> np.ndarray:
    """Labels [n] or [n, C] from `path`; one-column tables become [n]. Raises DataError as `read_features`."""
    return _read(path, np.float64, ".npy, .csv, .tsv or .txt")


def read_companions(options: ReadOptions) -> tuple[np.ndarray | SparseRows | None, np.ndarray | None]:
    """Features and labels from the files that `options` name, for sources that hold edges only; None where unnamed."""
    features = read_features(options.features, options.workspace) if options.features else None
    return features, read_labels(options.labels) if options.labels else None


def read_ids(path: Path) -> np.ndarray:
    """Vertex ids [k], or a bool mask [n] if an .npy file holds one. Raises DataError as `read_features`."""
    found = _read(path, np.int64, ".npy, .csv, .tsv or .txt")
    return found.reshape(-1) if found.ndim == 2 and 1 in found.shape else found


def _read(path: Path, dtype: type, kinds: str, workspace: Workspace | None = None) -> np.ndarray:
    if path.suffix == ".npy":
        return read_npy(path)
    if is_text_table(path):
        return read_numbers(existing(path), dtype, workspace)
    existing(path)
    raise DataError(f"{path}: unknown kind of file; expected {kinds}")


def read_sparse(path: Path, workspace: Workspace | None = None) -> SparseRows:
    """The csr, csc or coo matrix that scipy.sparse.save_npz wrote to `path`. Raises DataError if it is none,
    ResourceError when `workspace` may not hold it."""
    file = NpzFile(existing(path), workspace)
    if "format" not in file.names:
        raise DataError(f"{path} is no matrix saved by scipy.sparse.save_npz (it has no array 'format')")
    kind = file.read("format").item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc", "coo"):
        raise DataError(f"{path} holds a sparse matrix in {kind!r} form; csr, csc and coo are read")
    return file.sparse("", kind)
