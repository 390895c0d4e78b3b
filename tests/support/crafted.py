"""Files made to mislead: values changed as a program with bad intentions would, every digest made again."""

import hashlib
from pathlib import Path

import h5py
import numpy as np

from leapmpi.dataset.hdf5 import attributes, names


def digest_of(array: np.ndarray) -> str:
    """The digest of the bytes of `array`, as files carry it."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=names.DIGEST_BYTES).hexdigest()


def change_array(path: Path, name: str, place, value) -> None:
    """Set array[place] = value in the HDF5 file at `path` and make the array's digest again."""
    with h5py.File(path, "r+") as file:
        array = file[name][...]
        array[place] = value
        file[name][...] = array
        file[name].attrs[names.DIGEST] = np.bytes_(digest_of(array))


def change_attributes(path: Path, **changes) -> None:
    """Change root attributes of the HDF5 file at `path` and make their digest again."""
    with h5py.File(path, "r+") as file:
        for name, value in changes.items():
            file.attrs[name] = np.bytes_(value) if isinstance(value, str) else value
        found = attributes.read_attributes(file)
        del found[names.DIGEST]
        file.attrs[names.DIGEST] = np.bytes_(attributes.attributes_digest(found))


def damage(path: Path, name: str, byte: int = 3) -> None:
    """Turn one bit of array `name` in the HDF5 file at `path`; its digest stays as it was."""
    with h5py.File(path) as file:
        offset = file[name].id.get_offset() + byte
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)
