"""Pickles and files of torch.save with any content, as a hostile file may have: for tests of readers."""

import io
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


class Call:
    """A call of `function` with `arguments`, and the `state` that its result is given; only once it is unpickled."""

    def __init__(self, function: Callable, *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple:
        return self.parts


@dataclass(frozen=True)
class Storage:
    """A storage of torch in the member data/KEY, of `count` numbers of type `kind`."""

    key: str
    count: int
    kind: Any = torch.FloatStorage


def tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Call:
    """A tensor as torch pickles it, over any storage."""
    return Call(torch._utils._rebuild_tensor_v2, storage, offset, size, stride, False, {})


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return ("storage", value.kind, value.key, "cpu", value.count) if isinstance(value, Storage) else None


def torch_pickle(content: Any) -> bytes:
    """What torch.save would write of `content` as data.pkl."""
    out = io.BytesIO()
    _Pickler(out, 2).dump(content)
    return out.getvalue()


def write_torch(path: Path, pickled: bytes, members: Mapping[str, bytes]) -> None:
    """A file of torch.save with the given data.pkl and the storages `members`."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("g/data.pkl", pickled)
        archive.writestr("g/byteorder", "little")
        for key, content in members.items():
            archive.writestr(f"g/data/{key}", content)
