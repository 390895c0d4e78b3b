"""Import of files of torch.save, against torch's."""

import io
import os
import sys
import types
import zipfile

import numpy as np
import pytest
import torch

from data_prep.formats.torch_files import load_torch
from data_prep.workspace import Workspace
from leapmpi.errors import DataError, ResourceError
from tests.data_prep.conftest import SYMMETRIC, neighbours
from tests.support.pickles import Call, Storage, tensor, torch_pickle, write_torch


class PyG:
    """Stands in for torch_geometric's classes while a file is written: the same names and attributes."""

    def __init__(self, monkeypatch):
        for package in ("torch_geometric", "torch_geometric.data"):
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        for name, kinds in (
            ("torch_geometric.data.data", ("Data", "DataEdgeAttr", "DataTensorAttr")),
            ("torch_geometric.data.storage", ("GlobalStorage",)),
        ):
            module = types.ModuleType(name)
            for kind in kinds:
                setattr(module, kind, type(kind, (), {"__module__": name}))
                setattr(self, kind, getattr(module, kind))
            monkeypatch.setitem(sys.modules, name, module)

    def data(self, **tensors):
        data, store = self.Data(), self.GlobalStorage()
        store._mapping, store._parent = tensors, data
        data._edge_attr_cls, data._tensor_attr_cls, data._store = self.DataEdgeAttr, self.DataTensorAttr, store
        return data


@pytest.fixture
def tensors(small):
    return {
        "x": torch.from_numpy(small.features).float(),
        "edge_index": torch.from_numpy(small.edges),
        "y": torch.from_numpy(small.labels),
        **{f"{name}_mask": torch.isin(torch.arange(6), torch.from_numpy(getattr(small, name)))
           for name in ("train", "val", "test")},
    }  # fmt: skip


@pytest.mark.parametrize("layout", ["data", "dict", "set of one", "old set of one"])
def test_pt(imported, monkeypatch, tmp_path, small, tensors, layout):
    pyg = PyG(monkeypatch)
    saved = {
        "data": lambda: pyg.data(**tensors),
        "dict": lambda: tensors,
        "set of one": lambda: (tensors, None, pyg.Data),
        "old set of one": lambda: (pyg.data(**tensors), {"x": torch.tensor([0, 6])}),
    }[layout]()
    torch.save(saved, tmp_path / "g.pt")
    graph = imported(tmp_path / "g.pt")
    assert neighbours(graph) == SYMMETRIC
    np.testing.assert_array_equal(graph.features, small.features)
    assert graph.labels.tolist() == small.labels.tolist()
    assert graph.split.tolist() == [1, 1, 2, 0, 3, 3]


def test_pt_needs_no_torch(tmp_path, tensors, monkeypatch):
    torch.save(tensors, tmp_path / "g.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert set(load_torch(tmp_path / "g.pt")) == set(tensors)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool],
)
def test_tensor_types_and_views(tmp_path, dtype):
    whole = (torch.arange(24) % 7).to(dtype).reshape(4, 6)
    views = {"whole": whole, "turned": whole.T, "part": whole[1:, ::2], "empty": whole[:0], "one": whole[2, 3]}
    torch.save(views, tmp_path / "g.pt")
    found = load_torch(tmp_path / "g.pt")
    for name, view in views.items():
        np.testing.assert_array_equal(found[name], view.float().numpy() if dtype == torch.bfloat16 else view.numpy())


def test_pt_split_of_several(imported, refused, tmp_path, tensors):
    masks = {name: torch.stack([mask, mask.roll(1)], 1) for name, mask in tensors.items() if "mask" in name}
    torch.save(tensors | masks, tmp_path / "g.pt")
    assert "split 0 of 2 was taken" in imported(tmp_path / "g.pt").table
    torch.save(tensors | masks | {"y": torch.zeros(6, dtype=torch.int64)}, tmp_path / "g.pt")
    assert imported(tmp_path / "g.pt", "--split-index", 1).split.tolist() == [3, 1, 1, 2, 0, 3]
    assert "has 2 splits" in refused(tmp_path / "g.pt", "--split-index", 2)


def test_pt_refused(refused, tmp_path, tensors):
    def said(content, *arguments):
        torch.save(content, tmp_path / "g.pt")
        return refused(tmp_path / "g.pt", *arguments)

    assert "names posix.getcwd; only dense tensors" in said(tensors | {"x": Call(os.getcwd)})
    assert "names torch._utils._rebuild_sparse_tensor" in said(tensors | {"x": torch.eye(6).to_sparse()})
    assert "has no edge_index; it holds x" in said({"x": tensors["x"]})
    assert "holds a ndarray; expected a Data" in said(tensors["x"])
    assert "edge_index must have shape [2, edges]" in said(tensors | {"edge_index": tensors["edge_index"].T})
    assert "edge_index: edge 0 (counted from 0): its source 1000 is out" in said(
        tensors | {"edge_index": tensors["edge_index"] + 1000}
    )
    assert "only 2 edges, but 5,000,000 vertices" in said({"edge_index": torch.tensor([[0, 1], [1, 4_999_999]])})
    assert "holds several graphs" in said((tensors, {"x": torch.tensor([0, 3, 6])}, None))
    assert "reaches beyond its storage" in said(tensors | {"x": torch.zeros(1, 1).expand(6, 10**9)})
    whole = (tmp_path / "g.pt").read_bytes()
    (tmp_path / "g.pt").write_bytes(whole[:-30])
    assert "truncated or no zip archive" in refused(tmp_path / "g.pt")


def test_pt_storage_of_another_size(tmp_path, tensors):
    torch.save(tensors, tmp_path / "g.pt")
    changed = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "g.pt") as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[: -8 if name.endswith("data/0") else None])
    (tmp_path / "g.pt").write_bytes(changed.getvalue())
    with pytest.raises(DataError, match=r"data/0 holds 16 numbers, but 18 are announced"):
        load_torch(tmp_path / "g.pt")


FOUR = Storage("0", 4)
OBJECTS = np.empty(0).__reduce__()[0], np.ndarray, (0,), b"b"

HOSTILE = {
    "an array for a storage": (
        tensor(Call(np.ndarray, (4096,), "i8", b"A" * 8, 0, (0,)), 0, (6, 3), (3, 1)),
        "its pickle calls numpy.ndarray; only dense tensors",
    ),
    "an array of numpy for a storage": (tensor(np.zeros(6), 0, (6,), (1,)), "a tensor without storage"),
    "a text for a storage": (tensor("storage", 0, (6,), (1,)), "a tensor without storage"),
    "beyond the end": (tensor(FOUR, 0, (6, 1), (1, 1)), "reaches beyond its storage of 4 numbers"),
    "an offset beyond the end": (tensor(FOUR, 2**40, (1,), (1,)), "reaches beyond its storage"),
    "a negative offset": (tensor(FOUR, -1, (2,), (1,)), "a tensor with negative sizes"),
    "a negative stride": (tensor(FOUR, 3, (2,), (-1,)), "a tensor with negative sizes"),
    "a huge stride": (tensor(FOUR, 0, (2,), (2**70,)), "a tensor with negative sizes"),
    "sizes that wrap around": (tensor(FOUR, 0, (2**32, 2**32), (0, 0)), "reaches beyond its storage"),
    "more numbers than stored": (tensor(FOUR, 0, (1000,), (0,)), "reaches beyond its storage"),
    "sizes of an array": (tensor(FOUR, 0, np.array([2, 2]), (2, 1)), "a tensor without storage, sizes or strides"),
    "a size of a text": (tensor(FOUR, 0, ("2",), (1,)), "a tensor with negative sizes"),
    "more announced": (tensor(Storage("0", 9), 0, (9,), (1,)), "data/0 holds 4 numbers, but 9 are announced"),
    "another type": (tensor(Storage("0", 4, np.ndarray), 0, (4,), (1,)), "a storage of an unknown type"),
    "another member": (tensor(Storage("../data.pkl", 4), 0, (4,), (1,)), "There is no item named"),
    "objects of bytes": (
        Call(*OBJECTS, state=(1, (1,), np.dtype("O"), False, b"A" * 8)),
        "an array of type object made of bytes",
    ),
    "a Data without end": (((((((("x",),),),),),),), "expected a Data of torch_geometric"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_tensors_reach_no_memory_but_their_storages(refused, tmp_path, name):
    content, said = HOSTILE[name]
    edges = tensor(Storage("1", 4, torch.LongStorage), 0, (2, 2), (2, 1))
    whole = content if isinstance(content, tuple) else {"edge_index": edges, "x": content}
    members = {"0": np.arange(4, dtype="f4").tobytes(), "1": np.array([0, 1, 1, 0]).tobytes()}
    write_torch(tmp_path / "g.pt", torch_pickle(whole), members)
    sentence = refused(tmp_path / "g.pt")
    assert said in sentence
    assert "g.pt" in sentence


def deep():
    """Tuples of tuples that are small in a file, and that nothing may walk through: 2^60 of them."""
    found = ()
    for _ in range(60):
        found = (found, found)
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["x", "y", "edge_label", "train_mask", "edge_weight", "val_edge_mask", "num_nodes"])
def test_nested_tuples_are_not_walked_through(prep, tmp_path, name):
    edges = tensor(Storage("1", 4, torch.LongStorage), 0, (2, 2), (2, 1))
    graph, members = {"edge_index": edges}, {"1": np.array([0, 1, 1, 0]).tobytes()}
    for content in (graph | {name: deep()}, (graph, {name: deep()}), {"edge_index": deep()}):
        write_torch(tmp_path / "g.pt", torch_pickle(content), members)
        outcome = prep("import", tmp_path / "g.pt", tmp_path / "g.h5", "--overwrite")
        assert outcome.code in (0, 3)
        errors = [line for line in outcome.error.splitlines() if "error" in line]
        assert len(errors) == (outcome.code > 0)


def test_storages_in_several_tensors_are_read_once(tmp_path):
    content = {f"x{number}": tensor(FOUR, 0, (4,), (1,)) for number in range(3)}
    write_torch(tmp_path / "g.pt", torch_pickle(content), {"0": np.arange(4, dtype="f4").tobytes()})
    found = load_torch(tmp_path / "g.pt")
    assert all(np.shares_memory(found["x0"], each) for each in found.values())


def test_storages_that_unpack_to_more_than_memory_are_refused(tmp_path):
    content = {f"x{number}": tensor(Storage(str(number), 4 << 20), 0, (1,), (1,)) for number in range(40)}
    write_torch(tmp_path / "g.pt", torch_pickle(content), {})
    with zipfile.ZipFile(tmp_path / "g.pt", "a", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"g/data/{number}", bytes(16 << 20))
    assert (tmp_path / "g.pt").stat().st_size < 1 << 20
    with pytest.raises(ResourceError, match=r"g\.pt: g/data/\d+ and what is read of it before.* needs"):
        load_torch(tmp_path / "g.pt", Workspace(tmp_path, 512 << 20))
