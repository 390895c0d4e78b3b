"""Attributes of HDF5 files as plain values, and the digest of all root attributes."""

from __future__ import annotations

import hashlib
import struct

import h5py
import numpy as np

from leapmpi.dataset.hdf5 import names

Attributes = dict[str, str | int | float | bool]

_LARGEST_ATTRIBUTE = 1 << 16

LONGEST_TEXT = 4000
"""Length of texts in bytes, above which they are cut. Object headers, which have a checksum, hold 64 KiB."""


def attributes_digest(attributes: Attributes) -> str:
    """Return the digest of root attributes: BLAKE2b of the lines `name type value`, in the order of the names."""
    state = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
    for name in sorted(attributes):
        value = attributes[name]
        # bool before int: True is an int too.
        if isinstance(value, bool):
            text = f"bool {int(value)}"
        elif isinstance(value, int):
            text = f"int {value}"
        elif isinstance(value, float):
            text = f"float {struct.pack('<d', value).hex()}"
        else:
            text = f"str {value}"
        state.update(f"{name} {text}\n".encode())
    return state.hexdigest()


def plain_value(value: object) -> str | int | float | bool:
    """Return an attribute as Python str, bool, int or float; long text is cut. Raises TypeError for other types."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        cut = value.replace("\0", " ").encode("utf-8", "replace")[:LONGEST_TEXT]
        return cut.decode("utf-8", "ignore")
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    raise TypeError(f"an attribute must be text, a number or a truth value, not {type(value).__name__}")


def read_attributes(group: h5py.Group | h5py.Dataset) -> Attributes:
    """Read all attributes of `group` as plain Python values. Raises ValueError for one above 64 KiB."""
    held, found = group.attrs, {}
    for name in held:
        size = held.get_id(name).get_storage_size()
        if size > _LARGEST_ATTRIBUTE:
            raise ValueError(f"attribute {name} takes {size} bytes")
        found[name] = plain_value(held[name])
    return found
