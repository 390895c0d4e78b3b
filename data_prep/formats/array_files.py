"""One array from one file: .npy, a text table, or a sparse matrix in .npz as scipy.sparse.save_npz writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import ReadOptions, SparseRows
from data_prep.formats.npz_reader import MAPPED_FROM, NamedArrays, NpzFile, read_header, with_rows
from data_prep.formats.numeric_text import is_text_table, read_numbers
from data_prep.workspace import Workspace
from leapmpi.errors import DataError

_BYTES_JOINED_AT_ONCE = 16 * 2**20


def read_companions(options: ReadOptions) -> tuple[np.ndarray | SparseRows | None, np.ndarray | None]:
    """Read features [n, F] and labels [n] or [n, C] from the files that `options` name; None where they name none.

    Features of a table go to a temporary file. Raises DataError when the kind of a file is unknown or it is damaged.
    """
    features = labels = None
    if options.features and options.features.suffix == ".npz":
        features = read_sparse(options.features, options.workspace)
    elif options.features:
        kinds = ".npy, .npz (scipy.sparse.save_npz), .csv, .tsv or .txt"
        features = _rows(options.features, np.float32, kinds, options.workspace)
    if options.labels:
        labels = _rows(options.labels, np.float64, ".npy, .csv, .tsv or .txt")
    return features, labels


def companions_of(
    file: NamedArrays, options: ReadOptions, features: Sequence[str], labels: str
) -> tuple[np.ndarray | SparseRows | None, np.ndarray | None]:
    """Read features and labels of `file`: files or arrays that flags name, else the first of `features`, and `labels`.

    A sparse matrix in several arrays, such as attr_indptr and attr_data, goes by the name that they have in common.
    Raises DataError for a name that is neither a file nor in `file`.
    """
    # A sparse matrix is several arrays: its prefix stands for it as a name.
    prefixes = (name.removesuffix("indptr") for name in file.names if name.endswith("indptr"))
    sparse = {prefix.rstrip("_."): prefix for prefix in prefixes if prefix.rstrip("_.")}
    options, named_features, named_labels = options.of_source({*file.names, *sparse}, file.path)
    found, classes = read_companions(options)

    held = (name for name in features if name in {*file.names, *sparse})
    name = named_features or (next(held, None) if found is None else None)
    if name in file.names:
        found = file.rows(name)
        if isinstance(found, np.ndarray) and found.dtype.kind not in "biuf":
            raise DataError(f"{file.label(name)} must be an array of numbers")
    elif name:
        found = file.sparse(sparse[name])
    if classes is None and (name := named_labels or file.first(labels)):
        classes = file.array(name)
    return found, classes


def read_ids(path: Path) -> np.ndarray:
    """Read vertex ids [k], or a bool mask [n] if an .npy file holds one. Raises DataError as `read_companions`."""
    found = read_array(path)
    return found.reshape(-1) if found.ndim == 2 and 1 in found.shape else found


def read_array(path: Path) -> np.ndarray:
    """Read the numbers of an .npy file, or of a text table. Raises DataError as `read_companions`."""
    return _rows(path, np.int64, ".npy, .csv, .tsv or .txt")


def npy_names(folder: Path) -> frozenset[str]:
    """List the names of arrays in the .npy files of `folder`, in which `-` stands for `_`."""
    return frozenset(file.stem.replace("-", "_") for file in folder.glob("*.npy"))


class NpyFolder(NamedArrays):
    """The arrays of a folder, one per .npy file; large ones are mapped. Raises DataError where two have one name."""

    def __init__(self, path: Path, workspace: Workspace | None = None) -> None:
        super().__init__(path, npy_names(path), workspace)
        self._files: dict[str, Path] = {}
        for file in sorted(path.glob("*.npy")):
            other = self._files.setdefault(file.stem.replace("-", "_"), file)
            if other != file:
                raise DataError(f"{path} holds both {other.name} and {file.name}; take one of them out")

    def label(self, name: str) -> str:
        """Return the name of the array `name` in messages."""
        return str(self._files[name])

    def file(self, name: str) -> str:
        """Return the name of the file of the array `name`."""
        return self._files[name].name

    def read(self, name: str) -> np.ndarray:
        """Read the array `name`. Raises DataError when it is missing or damaged."""
        if name not in self._files:
            raise DataError(f"{self.path} has no file {name}.npy; it holds {', '.join(sorted(self.names))}")
        self.taken.add(name)
        return _read(self._files[name], np.float64, ".npy")


def _rows(path: Path, dtype: type, kinds: str, workspace: Workspace | None = None) -> np.ndarray:
    """Read as `_read`, for arrays that must have rows."""
    found = _read(path, dtype, kinds, workspace)
    with_rows(found, str(path))
    return found


def _read(path: Path, dtype: type, kinds: str, workspace: Workspace | None = None) -> np.ndarray:
    """Read the array in an .npy file, a large one mapped, or in a text table."""
    _check_there(path)
    if is_text_table(path):
        return read_numbers(path, dtype, workspace)
    if path.suffix != ".npy":
        raise DataError(f"{path}: unknown kind of file; expected {kinds}")
    try:
        with path.open("rb") as file:
            shape, by_columns, dtype = read_header(file, path.stat().st_size)
            begin = file.tell()
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is truncated or not an .npy file ({error})") from error
    if dtype.hasobject:
        raise DataError(f"{path} holds Python objects, not numbers; save it as a plain array")
    # An empty array cannot be mapped.
    if not math.prod(shape) * dtype.itemsize:
        return np.empty(shape, dtype)
    found = np.memmap(path, dtype, "r", begin, shape, "F" if by_columns else "C")
    return found if found.nbytes >= MAPPED_FROM else np.array(found)


def read_sparse(path: Path, workspace: Workspace | None = None) -> SparseRows:
    """Read the csr, csc or coo matrix that scipy.sparse.save_npz wrote to `path`. Raises DataError, ResourceError."""
    _check_there(path)
    file = NpzFile(path, workspace)
    if "format" not in file.names:
        raise DataError(f"{path} is not a matrix saved by scipy.sparse.save_npz (it has no array 'format')")
    found = file.read("format")
    kind = found.item() if isinstance(found, np.ndarray) and found.size == 1 else None
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc", "coo"):
        raise DataError(f"{path} holds a sparse matrix in {kind!r} form; csr, csc and coo are read")
    return file.sparse("", kind)


def _check_there(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path} does not exist")


def joined_rows(arrays: Sequence[np.ndarray], names: Sequence[str], workspace: Workspace | None = None) -> np.ndarray:
    """Join the rows of all `arrays`, called `names` in messages, in a temporary file of `workspace` if given.

    Raises DataError where they differ in type or width.
    """
    first = arrays[0]
    for array, name in zip(arrays, names, strict=True):
        if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
            raise DataError(
                f"{name} holds {array.dtype} of shape {list(array.shape)}, but {names[0]} {first.dtype} of shape "
                f"{list(first.shape)}; all must have one type and width"
            )
    if len(arrays) == 1:
        return first
    shape = (sum(map(len, arrays)), *first.shape[1:])
    out = np.empty(shape, first.dtype) if workspace is None else workspace.array("joined", shape, first.dtype)

    # Blocks of rows: the arrays may be mapped and larger than memory.
    rows = max(1, _BYTES_JOINED_AT_ONCE // max(1, first.dtype.itemsize * int(np.prod(first.shape[1:]))))
    place = 0
    for array in arrays:
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            out[place : place + len(block)] = block
            place += len(block)
    return out
