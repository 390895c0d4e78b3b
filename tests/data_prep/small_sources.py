"""A small graph in several formats, and two typed ones, for tests of one command on all of them."""

import numpy as np

from tests.data_prep.typed_folders import EDGES, write_folder


def write_sources(folder):
    """Write edges.csv (with weights), snap.txt, edges.npy, table.csv, typed/ (with weights) and triples/."""
    edges = np.random.default_rng(3).integers(0, 2000, (12_000, 2))
    (folder / "edges.csv").write_text("".join(f"{s},{d},{s % 7}\n" for s, d in edges.tolist()))
    (folder / "snap.txt").write_text("# Nodes: 9 Edges: 9\n" + "".join(f"{5 * s} {5 * d}\n" for s, d in edges.tolist()))
    np.save(folder / "edges.npy", edges.T)
    (folder / "table.csv").write_text("src,dst\n" + "".join(f"{s},{d}\n" for s, d in edges.tolist()))
    write_folder(folder / "typed")
    for name, pairs in EDGES.items():
        np.save(folder / "typed" / "edges" / name / "edge_weight.npy", np.arange(len(pairs[0]), dtype=np.float32))
    (folder / "triples").mkdir()
    triples = [f"e{s}\tr{s % 3}\te{d}\n" for s, d in edges.tolist()]
    for name, some in (("train", triples[:-200]), ("valid", triples[-200:-100]), ("test", triples[-100:])):
        (folder / "triples" / f"{name}.txt").write_text("".join(some))
    return folder
