"""Files of weights: the parameters of a model by name, with what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.dataset.hdf5.named_arrays import read_named_arrays, write_named_arrays
from leapmpi.dataset.hdf5.names import WEIGHTS_FORMAT
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import written_aside

_PARAMETERS = "parameters"


def write_weights(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write weights as HDF5, whole or not at all, with `about` (plain values) as JSON."""
    with written_aside(path, overwrite=True) as aside:
        write_named_arrays(aside, WEIGHTS_FORMAT, _PARAMETERS, arrays, about)


def read_weights(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Weights and what was said about them. Raises DataError when the file is missing, foreign or damaged."""
    if not path.is_file():
        raise DataError(f"{path}: no such weights file; was the run finished?")
    return read_named_arrays(path, WEIGHTS_FORMAT, _PARAMETERS, ("<f4", "<f8"))
