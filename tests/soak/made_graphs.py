"""Small graphs for long runs, made of a synthetic graph: by name, how they are imported and cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

METIS = ("--parts", "4", "--method", "metis")

RELATIONS = (
    ("paper", "cites", "paper"),
    ("author", "writes", "paper"),
    ("field", "names", "paper"),
    ("author", "knows", "author"),
)

MADE = {
    "small": ((), METIS),
    # Pairs of ranks that share many edges.
    "hash": ((), ("--parts", "4", "--method", "hash")),
    "columns": ((), (*METIS, "--layout", "columns")),
    "sparse": (("--feature-storage", "sparse"), METIS),
    "several": ((), METIS),
    "targets": ((), METIS),
    "carrying": ((), METIS),
    "bare": ((), METIS),
    "links": (("--split-edges", "0.85,0.05,0.1"), METIS),
    "kinds": (("--split-edge-labels", "0.8,0.1,0.1"), METIS),
    # Types of vertices and relations.
    "typed": (("--add-reverse",), METIS),
    "typed-hash": (("--add-reverse",), ("--parts", "4", "--method", "hash")),
    # A knowledge graph.
    "triples": (("--add-reverse",), METIS),
}
"""By dataset that is made: flags of import, and flags of partition."""


def write_source(name: str, arrays: dict[str, np.ndarray], base: Path) -> Path:
    """The source of graph `name`, made of the arrays of a synthetic graph; its own name begins with `base`."""
    write = {"typed": _write_types, "triples": _write_triples}.get(name.partition("-")[0])
    if write:
        write(arrays, base)
        return base
    path = base.with_name(f"{base.name}.npz")
    np.savez(path, **_made(name, arrays))
    return path


def _write_types(arrays: dict[str, np.ndarray], folder: Path) -> None:
    """Papers with features and labels, fields with other features, and authors without any; four relations.

    Papers are the first half of the vertices, authors most of the others.
    """
    features, ends = arrays["features"], arrays["edges"].astype(np.int64)
    count = len(features)
    bases = np.array([0, count // 2, count - count // 8, count])
    names = ("paper", "author", "field")
    half = slice(0, bases[1])
    rows = {
        "paper": {"feat": features[half], "label": arrays["labels"][half]},
        "author": {},
        "field": {"feat": features[bases[2] :, : max(1, features.shape[1] // 3)]},
    }
    rows["paper"] |= {split: arrays[split][arrays[split] < bases[1]] for split in ("train", "val", "test")}
    for name, each in rows.items():
        (folder / "nodes" / name).mkdir(parents=True)
        for what, array in each.items():
            np.save(folder / "nodes" / name / f"{what}.npy", array)
    counts = dict(zip(names, np.diff(bases).tolist(), strict=True))
    described = {"nodes": {name: {"count": count} for name, count in counts.items()}, "target": "paper"}
    (folder / "meta.json").write_text(json.dumps(described))

    # Each edge one way, by the types of its ends; those of other pairs are left out.
    kinds = np.searchsorted(bases, ends, side="right") - 1
    for source, relation, destination in RELATIONS:
        pair = names.index(source), names.index(destination)
        found = ends[(kinds == pair).all(axis=1)] - bases[list(pair)]
        path = folder / "edges" / f"{source}__{relation}__{destination}"
        path.mkdir(parents=True)
        np.save(path / "edge_index.npy", found.T)


def _write_triples(arrays: dict[str, np.ndarray], folder: Path) -> None:
    """Edges as triples of one of four relations; a tenth each for validation and test."""
    folder.mkdir(parents=True)
    lines = [f"v{a}\tr{(a * 7 + b) % 4}\tv{b}\n" for a, b in arrays["edges"].tolist()]
    for number, split in enumerate(("valid", "test")):
        (folder / f"{split}.txt").write_text("".join(lines[number::10]))
    (folder / "train.txt").write_text("".join(line for place, line in enumerate(lines) if place % 10 > 1))


def _made(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of source `name`, made of those of a synthetic graph."""
    arrays, rng = dict(arrays), np.random.default_rng(5)
    features, ends = arrays["features"], arrays["edges"]
    count, edges = len(features), ends.size // 2
    if name == "sparse":
        arrays["features"] = np.where(rng.random(features.shape) < 0.8, np.float32(0), features)
    elif name == "several":
        arrays["labels"] = (rng.random((count, 4)) < 0.3).astype(np.float32)
    elif name == "targets":
        arrays["labels"] = (features[:, :2] + rng.standard_normal((count, 2))).astype(np.float32)
    elif name == "carrying":
        arrays["edge_weight"] = rng.integers(1, 5, edges).astype(np.float32) / 2
        arrays["edge_features"] = rng.standard_normal((edges, 3)).astype(np.float32)
        arrays["edge_time"] = rng.integers(-20, 30, edges)
    elif name == "bare":
        del arrays["features"]
    elif name == "kinds":
        arrays["edge_labels"] = ends.reshape(2, -1).sum(axis=0) % 3
    if name in ("several", "targets"):
        arrays.pop("classes", None)
    return arrays
