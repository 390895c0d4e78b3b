"""Hostile and damaged .npz, .npy, .pt, .mat and pickle files, read and imported:

    python -m tests.soak.fuzz_imports --trials 100000 --seed 0

Valid files are changed in their bytes, in a member of an archive (whose checksum then fits), in the header of an
array, or opcode by opcode in a pickle; other pickles are written from nothing, near to what numpy, scipy and torch
write. A reader must give arrays whose memory is its own, or say one sentence that names the file (DataError and its
like). It must not raise anything else, crash, take longer than a few seconds, or ask for much more memory than the
file's size. Readers run in children that are limited in address space and time; a file at which one dies is kept in
the folder `leapmpi-fuzz-imports` for temporary files, and its trial, with the same --seed, makes it again.
"""

import contextlib
import io
import json
import pickle
import pickletools
import random
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp
import torch

from data_prep.cli import main
from data_prep.edges.raw_graph import SparseRows
from data_prep.formats.array_files import read_array
from data_prep.formats.mat_file import SparseColumns, read_mat
from data_prep.formats.npz_reader import NpzFile
from data_prep.formats.restricted_unpickler import load_pickle
from data_prep.formats.torch_files import load_torch
from data_prep.workspace import Workspace
from leapmpi.errors import LeapmpiError
from tests.soak.fuzz import BATCH, NUMBERS, SECONDS, Outcome, blank, cut, flip, move, number, run_batch
from tests.support.dgl_files import save_sampling_graph
from tests.support.pickles import write_torch
from tests.support.trials import trials_main

KEPT = Path(tempfile.gettempdir()) / "leapmpi-fuzz-imports"
IMPORTED = 0.1
"""The share of trials that import the file; the others read it alone."""

MOST_OBJECTS = 10_000
"""Objects that are looked at of what a reader gives."""

# -- what is read ---------------------------------------------------------------------------------------------------


def touch(found):
    """Read all memory of all arrays in `found`."""
    seen, left = set(), [found]
    while left and len(seen) < MOST_OBJECTS:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            assert each.nbytes < 1 << 26
            each.tobytes()
            left += each.reshape(-1).tolist() if each.dtype.hasobject else []
        elif isinstance(each, SparseRows | SparseColumns):
            left += [each.indptr, each.data]
        elif isinstance(each, dict):
            left += list(each.values())
        elif isinstance(each, list | tuple):
            left += list(each)


def read_npz(path, workspace):
    """Every array of the archive."""
    file = NpzFile(path, workspace)
    for name in sorted(file.names):
        touch(file.read(name))


def read_pickle(path, workspace):
    """The object."""
    with path.open("rb") as file:
        touch(load_pickle(file, str(path)))


READERS = {
    ".npz": read_npz,
    ".npy": lambda path, workspace: touch(read_array(path)),
    ".pt": lambda path, workspace: touch(load_torch(path, workspace)),
    ".mat": lambda path, workspace: touch(read_mat(path)),
    ".allx": read_pickle,
    ".graph": read_pickle,
    ".y": read_pickle,
}


def make(folder):
    """Graphs below `folder`, by what import is given; each with the files of it that are changed."""
    edges, features, labels = np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), np.eye(5, 3), np.arange(5) % 2
    plain = {"features": features, "labels": labels, "train": [0, 1], "val": [2]}
    matrix = sp.csr_matrix(np.eye(5)[[1, 2, 3, 4, 0]])
    matrices = {"adj_matrix": np.array(matrix, object), "node_attr": np.array(sp.csr_matrix(features), object)}
    made = {}

    def archive(name, arrays):
        np.savez(folder / name, **arrays)
        made[name] = [name]

    archive("edges.npz", {"edge_index": edges, **plain})
    archive("rows.npz", {"indptr": [0, 1, 2, 3, 4, 4], "indices": [1, 2, 3, 0], "edge_weight": np.ones(4), **plain})
    archive("pickled.npz", {**matrices, "node_label": labels})
    archive("objects.npz", {"edge_index": edges, "features": np.array([[1, "a"], [None, 2]], object)})
    archive("parts.npz", {f"adj_{key}": getattr(matrix, key) for key in ("data", "indices", "indptr", "shape")})
    sp.save_npz(folder / "scipy.npz", matrix.tocoo())
    made["scipy.npz"] = ["scipy.npz"]

    (folder / "arrays").mkdir()
    for name, array in {"edge_index": edges, **plain}.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    made["arrays"] = [f"arrays/{name}.npy" for name in ("edge_index", "features", "labels", "train")]

    tensors = {"edge_index": torch.from_numpy(edges), "x": torch.eye(5), "y": torch.arange(5) % 2, "num_nodes": 5}
    tensors["train_mask"] = torch.arange(5) < 2
    torch.save(tensors, folder / "tensors.pt")
    torch.save((tensors | {"x": torch.eye(5, dtype=torch.bfloat16).T}, {"x": torch.tensor([0, 5])}), folder / "pair.pt")
    made |= {"tensors.pt": ["tensors.pt"], "pair.pt": ["pair.pt"]}

    (folder / "bolt").mkdir()
    made["bolt"] = ["bolt/graph.pt", "bolt/label.pt"]
    about = {"feature_data": [{"domain": "node", "name": "label", "path": "label.pt"}]}
    (folder / "bolt/metadata.yaml").write_text(json.dumps({"graph_topology": {"path": "graph.pt"}, **about}))
    save_sampling_graph(folder / "bolt/graph.pt", np.arange(6), np.arange(5)[::-1].copy(), of_edges={"w": np.ones(5)})
    torch.save(tensors["y"], folder / "bolt/label.pt")

    (folder / "ogb/raw").mkdir(parents=True)
    (folder / "ogb/split/time").mkdir(parents=True)
    np.savetxt(folder / "ogb/raw/edge.csv", edges.T, "%d", ",")
    (folder / "ogb/raw/num-node-list.csv").write_text("5\n")
    pairs = {"source_node": np.array([1, 2]), "target_node": np.array([3, 4])}
    torch.save({"edge": torch.tensor([[0, 2], [1, 4]])}, folder / "ogb/split/time/valid.pt")
    torch.save(pairs, folder / "ogb/split/time/test.pt", pickle_protocol=4)
    made["ogb"] = ["ogb/split/time/valid.pt", "ogb/split/time/test.pt"]

    (folder / "planetoid").mkdir()
    rows, one_hot = sp.csr_matrix(features), np.eye(2)[labels]
    lists = {vertex: [(vertex + 1) % 5] for vertex in range(5)}
    parts = {"x": rows[:1], "y": one_hot[:1], "allx": rows[:3], "ally": one_hot[:3], "tx": rows[3:], "ty": one_hot[3:]}
    for protocol, (part, content) in enumerate((parts | {"graph": lists}).items()):
        (folder / f"planetoid/ind.g.{part}").write_bytes(pickle.dumps(content, 2 + protocol % 4))
    (folder / "planetoid/ind.g.test.index").write_text("3\n4\n")
    made["planetoid"] = [f"planetoid/ind.g.{part}" for part in ("allx", "graph", "y")]

    scipy.io.savemat(folder / "matlab.mat", {"network": matrix.tocsc(), "group": np.eye(5)}, do_compression=True)
    scipy.io.savemat(folder / "plain.mat", {"network": matrix.tocsc(), "attrb": features, "group": labels + 1.0})
    return made | {"matlab.mat": ["matlab.mat"], "plain.mat": ["plain.mat"]}


# -- pickles ----------------------------------------------------------------------------------------------------------

NAMES = [
    *(("numpy", "ndarray"), ("numpy", "dtype"), ("numpy._core.multiarray", "_reconstruct"), ("_codecs", "encode")),
    *(("numpy._core.multiarray", "scalar"), ("numpy._core.numeric", "_frombuffer"), ("__builtin__", "bytes")),
]
OF_SCIPY = [
    *(("scipy.sparse._csr", "csr_matrix"), ("scipy.sparse._coo", "coo_array"), ("__builtin__", "list")),
    ("collections", "defaultdict"),
]
OF_TORCH = [
    *(("collections", "OrderedDict"), ("torch._utils", "_rebuild_tensor_v2"), ("torch", "FloatStorage")),
    *(("torch", "LongStorage"), ("torch_geometric.data.data", "Data"), ("torch", "ScriptObject")),
    ("torch_geometric.data.storage", "GlobalStorage"),
    ("dgl.graphbolt.impl.fused_csc_sampling_graph", "FusedCSCSamplingGraph"),
]
OTHERS = [("builtins", "getattr"), ("posix", "system"), ("numpy", "load")]
TEXTS = ["f8", "i8", "O", "O8", "V8", "S8", "U2", "b1", "M8", "c16", "f2", "|", "<", ">", "C", "F", "K", "latin1", "b"]
TEXTS += ["edge_index", "x", "y", "num_nodes", "data", "indices", "indptr", "_shape", "row", "col", "coords"]
TEXTS += ["storage", "cpu", "0", "1", "_store", "_mapping", "_c_csc_graph", "independent_tensors", "A" * 8, "é", ""]


MEMBERS = {"0": bytes(range(32)), "1": bytes(64), "2": np.arange(4.0).tobytes()}
STORAGES = [("FloatStorage", b"0", 8), ("LongStorage", b"1", 8), ("DoubleStorage", b"2", 4), ("LongStorage", b"2", 4)]
STORAGES += [("BFloat16Storage", b"0", 16), ("BoolStorage", b"1", 64)]
"""What stands in files that are written from nothing, and storages that fit it."""


class Program:
    """Pickles written from nothing, of `torch` or of scipy; each method returns opcodes that push one value."""

    def __init__(self, chance, torch):
        self.chance, self.torch = chance, torch
        self.names = [*(NAMES + (OF_TORCH if torch else OF_SCIPY)) * 9, *NAMES, *OF_SCIPY, *OF_TORCH, *OTHERS]
        self.memo = 0

    def whole(self):
        """One pickle."""
        kind = self.chance.random()
        if kind < 0.5:
            body = self.graph() if self.torch else self.matrix()
        else:
            body = self.array() if kind < 0.75 else self.value(4)
        return b"\x80" + bytes([self.chance.randint(2, 5)]) + body + b"."

    def value(self, depth):
        """Any value."""
        kinds = [self.integer, self.text, self.content, self.constant, self.named, self.again]
        kinds += [self.storage] * self.torch
        if depth > 0:
            kinds += [self.array, self.dtype, self.tensor if self.torch else self.matrix]
            kinds += [partial(each, depth - 1) for each in (self.tuple, self.list, self.dict, self.call, self.built)]
        pushed = self.chance.choice(kinds)()
        if self.chance.random() < 0.2 and self.memo < 250:
            self.memo += 1
            pushed += b"q" + bytes([self.memo])
        return pushed

    def either(self, usual, depth=1):
        """`usual` most of the time, else any value."""
        return usual if self.chance.random() < 0.9 else self.value(depth)

    def integer(self):
        value = self.chance.choice([*NUMBERS, -1, -8, 3, 4, 5, 8, 2**70])
        return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)

    def text(self):
        content = self.chance.choice(TEXTS).encode()
        return b"X" + struct.pack("<I", len(content)) + content

    def content(self):
        content = self.chance.choice([b"", b"A" * 8, bytes(16), b"\xff" * 40, bytes(range(24)), b"A" * 4096])
        code = self.chance.choice([(b"B", "<I"), (b"\x8e", "<Q"), (b"\x96", "<Q")])
        return code[0] + struct.pack(code[1], len(content)) + content

    def constant(self):
        return self.chance.choice([b"N", b"\x88", b"\x89", b")", b"]", b"}", b"G" + struct.pack(">d", 0.5)])

    def named(self, name=None):
        module, name = name or self.chance.choice(self.names)
        return f"c{module}\n{name}\n".encode()

    def again(self):
        return b"h" + bytes([self.chance.randint(1, self.memo)]) if self.memo else b"N"

    def tuple(self, depth):
        return b"(" + b"".join(self.value(depth) for _ in range(self.chance.randint(0, 5))) + b"t"

    def list(self, depth):
        return b"](" + b"".join(self.value(depth) for _ in range(self.chance.randint(0, 5))) + b"e"

    def dict(self, depth):
        pairs = (self.either(self.text()) + self.value(depth) for _ in range(self.chance.randint(0, 5)))
        ordered = self.named(("collections", "OrderedDict" if self.torch else "defaultdict")) + b")R("
        return self.chance.choice([b"}(", b"}(", ordered]) + b"".join(pairs) + b"u"

    def call(self, depth):
        return self.named() + self.either(self.tuple(depth)) + self.chance.choice([b"R", b"\x81"])

    def built(self, depth):
        return self.value(depth) + self.value(depth) + b"b"

    def shape(self):
        length = self.chance.choice([b"K\0", b"K\1", b"K\2", b"K\3", b"K\5", self.integer()])
        return self.either(b"(" + length * self.chance.choice([0, 1, 1, 1, 2, 2, 3, 65]) + b"t")

    def dtype(self):
        made = self.named(("numpy", "dtype")) + self.either(self.text()) + b"\x89\x88\x87R"
        last = b"N" * 3 if self.chance.random() < 0.8 else self.value(1) * 3
        size = self.chance.choice([b"J\xff\xff\xff\xff", b"K\x08", self.integer()])
        return (
            made + b"(K\3" + self.either(self.text()) + last + size * 2 + self.chance.choice([b"K\0", b"K\x3f"]) + b"tb"
        )

    def array(self):
        if self.chance.random() < 0.2:
            made = self.named(("numpy._core.numeric", "_frombuffer")) + b"(" + self.content() + self.dtype()
            return made + self.shape() + self.text() + self.chance.choice([b"", self.shape()]) + b"tR"
        first = self.either(self.named(("numpy", "ndarray"))) + self.either(b"K\0\x85") + self.either(b"C\1b")
        made = self.named(("numpy._core.multiarray", "_reconstruct")) + first + b"\x87R"
        content = self.chance.choice([self.content(), self.list(1), self.text()])
        state = b"(K\1" + self.shape() + self.dtype() + self.chance.choice([b"\x88", b"\x89"]) + content + b"t"
        return made + self.either(state) + b"b" * self.chance.choice([1, 1, 1, 1, 2])

    def sound(self, array):
        """A sound array."""
        made = self.named(("numpy._core.numeric", "_frombuffer")) + b"(C" + bytes([array.nbytes]) + array.tobytes()
        made += self.named(("numpy", "dtype")) + b"X\2\0\0\0" + array.dtype.str[1:].encode() + b"\x89\x88\x87R"
        return made + b"(" + b"".join(b"K" + bytes([each]) for each in array.shape) + b"tX\1\0\0\0CtR"

    def matrix(self):
        kind = self.chance.choice([("scipy.sparse._csr", "csr_matrix"), ("scipy.sparse._coo", "coo_array")])
        names = ("_shape", "data", "indices", "indptr", "row", "col", "coords")
        usual = {"_shape": b"K\2K\2\x86", "coords": self.sound(np.arange(2)) * 2 + b"\x86"}
        pairs = b""
        for name in names:
            if self.chance.random() < 0.95:
                sound = usual.get(name) or self.sound(np.arange(3 if name == "indptr" else 2))
                pairs += b"X" + struct.pack("<I", len(name)) + name.encode() + self.either(sound, 2)
        return self.named(kind) + b")\x81}(" + pairs + b"ub"

    def storage(self):
        name, key, count = self.chance.choice(STORAGES)
        key = key if self.chance.random() < 0.9 else self.chance.choice([b"0", b"1", b"9"])
        return self.persistent(self.named(("torch", name)), key, b"K" + bytes([count]))

    def persistent(self, kind, key, count):
        named = b"X\7\0\0\0storage" + self.either(kind) + b"X\1\0\0\0" + key + b"X\3\0\0\0cpu" + self.either(count)
        return self.either(b"(" + named + b"t") + b"Q"

    def tensor(self, usual=None):
        storage, offset, size, stride = usual or (self.storage(), b"K\0", self.shape(), self.shape())
        parts = (self.either(each) for each in (storage, offset, size, stride))
        return self.named(("torch._utils", "_rebuild_tensor_v2")) + b"(" + b"".join(parts) + b"\x89}tR"

    def graph(self):
        """A dict of tensors as torch saves it, near to a graph."""
        long = self.persistent(self.named(("torch", "LongStorage")), b"1", b"K\x08")
        edges = self.tensor((long, b"K\0", b"K\2K\4\x86", b"K\4K\1\x86"))
        rows = self.tensor((self.storage(), b"K\0", b"K\4K\1\x86", b"K\1K\1\x86"))
        pairs = b"X\x0a\0\0\0edge_index" + self.either(edges) + b"X\1\0\0\0x" + self.either(rows)
        for _ in range(self.chance.randint(0, 3)):
            pairs += self.text() + self.value(2)
        return b"}(" + pairs + b"u"


def other_opcodes(pickled, chance, torch):
    """A pickle with opcodes left out, doubled, exchanged, or given other arguments; as it is where it is none."""
    try:
        places = [place for _, _, place in pickletools.genops(pickled)]
    except Exception:
        return pickled
    pieces = [pickled[low:high] for low, high in zip(places, [*places[1:], len(pickled)], strict=True)]
    pieces = [piece for piece in pieces if piece[:1] != b"\x95"]  # frames state lengths
    program = Program(chance, torch)
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(1, len(pieces))
        action = chance.randrange(5)
        if action == 0:
            del pieces[at]
        elif action == 1:
            pieces.insert(at, pieces[at] if at < len(pieces) - 1 else b"2")
        elif action == 2:
            pieces[at], pieces[other] = pieces[other := chance.randrange(1, len(pieces))], pieces[at]
        elif action == 3:
            pieces[at] = program.value(1)
        else:
            pieces[at] = bytes([chance.randrange(256)])
        if len(pieces) < 3:
            break
    return b"".join(pieces)


def other_pickle(pickled, chance, torch):
    """A pickle written from nothing, or this one with other opcodes."""
    return Program(chance, torch).whole() if chance.random() < 0.5 else other_opcodes(pickled, chance, torch)


# -- damage ---------------------------------------------------------------------------------------------------------

DESCRIPTIONS = ["<f8", "|O", "<i8", "|V8", ">f4", "<U4", "|S3", "|b1", "<c16", "<M8[s]", "<f16", "|V0", [("a", "|O")]]
DESCRIPTIONS += ["(2,)f8", "O8", "<q", [("a", "<i8"), ("a", "<i8")], ("<f8", (2, 2)), "", 7, None, "object"]


def other_header(content, chance):
    """An .npy file with another dtype, shape or order over the same numbers, or a header of odd text."""
    shape = chance.choice([(4,), (5, 3), (2, 4), (1 << 40,), (0, 1 << 62), (-1,), (), (1,) * 70, (2.0,), "ab", (True,)])
    about = {"descr": chance.choice(DESCRIPTIONS), "fortran_order": chance.choice([False, True, 2]), "shape": shape}
    if chance.random() < 0.1:
        del about[chance.choice(sorted(about))]
    text = bytearray(repr(about).encode() + b" " * 20 + b"\n")
    if chance.random() < 0.3:
        chance.choice((flip, number, blank, move))(text, chance)
    version = chance.choice((1, 1, 2, 3))
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    start = content.find(b"\n") + 1
    return b"\x93NUMPY" + bytes([version, 0]) + size + bytes(text) + content[start:]


def other_bytes(content, chance):
    """Damage that knows nothing of the content."""
    data = bytearray(content)
    if data:
        chance.choice((flip, flip, number, number, cut, blank, move))(data, chance)
    return bytes(data)


def other_member(name, content, chance):
    """Damage of a file or a member of an archive, by what it is."""
    if chance.random() < 0.2:
        return other_bytes(content, chance)
    if content.startswith(b"\x93NUMPY"):
        start = content.find(b"\n") + 1
        if b"'|O'" in content[:start]:
            return content[:start] + other_pickle(content[start:], chance, False)
        return other_header(content, chance)
    if name.endswith(("data.pkl", ".allx", ".graph", ".y")):
        return other_pickle(content, chance, name.endswith("data.pkl"))
    return other_bytes(content, chance)


def damage(path, chance):
    """Change the file at `path`; returns what was done."""
    content = path.read_bytes()
    if path.suffix not in (".npz", ".pt") or chance.random() < 0.1:
        whole = path.suffix in (".npz", ".pt")
        path.write_bytes(other_bytes(content, chance) if whole else other_member(path.name, content, chance))
        return "bytes" if whole else "content"
    if path.suffix == ".pt" and chance.random() < 0.3:
        write_torch(path, Program(chance, True).whole(), MEMBERS)
        return "written"

    # One member, with a checksum that fits.
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    likely = [name for name in members if name.endswith(("data.pkl", ".npy"))]
    name = chance.choice(likely if chance.random() < 0.9 else list(members))
    members[name] = other_member(name, members[name], chance)
    with zipfile.ZipFile(path, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for each, data in members.items():
            archive.writestr(each, data)
    return name


# -- trials ---------------------------------------------------------------------------------------------------------


def imported(source, folder):
    """Import `source` by the command line; returns whether it became a graph. Raises AssertionError for ill manners."""
    out, said = io.StringIO(), io.StringIO()
    target = folder / "out"
    target.mkdir()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(["import", str(source), str(target / "g.h5")])
    if code == 0:
        return True
    sentence = said.getvalue()
    assert code in (2, 3, 6), (code, sentence)
    assert sentence.startswith("leapmpi-prep: error: "), sentence
    assert sentence.count("\n") == 1, sentence
    assert sentence[:-1].isprintable(), sentence
    assert not list(target.iterdir()), sentence
    return False


def trial(seed, sound, made, work, number):
    """One reading or import of one damaged file."""
    chance = random.Random(f"{seed}-{number}")
    source = chance.choice(list(made))
    name = chance.choice(made[source])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    top = Path(name).parts[0]
    (shutil.copytree if (sound / top).is_dir() else shutil.copyfile)(sound / top, work / top)
    outcome = Outcome(number, name, damage(work / name, chance), "")
    shutil.copyfile(work / name, work / "kept")
    signal.alarm(SECONDS)
    try:
        if chance.random() < IMPORTED:
            outcome.result = "imported" if imported(work / source, work) else "refused"
        else:
            (work / "space").mkdir()
            READERS[Path(name).suffix](work / name, Workspace(work / "space", 1 << 30))
            outcome.result = "read"
    except LeapmpiError as error:
        outcome.result = "refused"
        if str(work / name) not in str(error):
            outcome.result, outcome.detail = "ill said", str(error)
    except MemoryError:
        outcome.result, outcome.detail = "allocated", traceback.format_exc()
    except Exception:
        outcome.result, outcome.detail = "raised", traceback.format_exc()
    signal.alarm(0)
    return outcome


def soak(trials, seed, base):
    """Run the trials; returns how often each thing happened, and what must not happen."""
    sound, work = base / "sound", base / "work"
    sound.mkdir()
    made = make(sound)
    for source, names in made.items():  # loads and compiles what children need
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        assert imported(sound / source, work) or source == "objects.npz", source
        for name in names:
            READERS[Path(name).suffix](sound / name, Workspace(work, 1 << 30))
    counts, faults = Counter(), []
    for first in range(0, trials, BATCH):
        numbers = list(range(first, min(trials, first + BATCH)))
        while numbers:
            outcomes = run_batch(numbers, partial(trial, seed, sound, made, work))
            for each in outcomes:
                counts[each.result] += 1
                if each.result not in ("read", "imported", "refused"):
                    faults.append(each)
            if outcomes[-1].result == "crashed" and (work / "kept").exists():
                KEPT.mkdir(exist_ok=True)
                outcomes[-1].file = str(shutil.copyfile(work / "kept", KEPT / f"{seed}-{outcomes[-1].number}"))
            numbers = [number for number in numbers if number > outcomes[-1].number]
    return counts, faults


if __name__ == "__main__":
    sys.exit(trials_main(__doc__, soak, 100_000))
