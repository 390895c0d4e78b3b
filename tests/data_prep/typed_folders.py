"""A small typed graph in plain arrays, and the folder of .npy files that holds it."""

import json

import numpy as np

COUNTS = {"author": 5, "paper": 6, "venue": 2}
EDGES = {
    "author__writes__paper": [[0, 0, 1, 2, 4, 4], [0, 3, 1, 5, 2, 2]],
    "paper__cites__paper": [[0, 1, 2, 5, 3], [1, 2, 0, 5, 4]],
    "paper__in__venue": [[0, 1, 2, 3], [0, 1, 1, 0]],
}
"""Edges by relation; one stands twice, one is a self-loop."""

FEATURES = {
    "paper": np.arange(18, dtype=np.float32).reshape(6, 3),
    "venue": np.array([[1.5], [-2.0]], np.float16),
}
LABELS = np.array([0, 1, -1, 2, 1, 0])
SPLITS = {"train": [0, 1], "val": [3], "test": [4, 5]}


def distinct(edges=EDGES):
    """The edges by relation without loops and repeats, as named_edges gives them."""
    found = set()
    for name, (sources, destinations) in edges.items():
        source, _, destination = name.split("__")
        pairs = zip(sources, destinations, strict=True)
        found |= {(name.replace("__", ":"), u, v) for u, v in pairs if source != destination or u != v}
    return found


def write_folder(folder):
    """Write nodes/, edges/, split/ and meta.json below `folder`."""
    for name, pairs in EDGES.items():
        (folder / "edges" / name).mkdir(parents=True)
        np.save(folder / "edges" / name / "edge_index.npy", np.array(pairs))
    for name, features in FEATURES.items():
        (folder / "nodes" / name).mkdir(parents=True)
        np.save(folder / "nodes" / name / "feat.npy", features)
    np.save(folder / "nodes" / "paper" / "label.npy", LABELS)
    (folder / "split").mkdir()
    for name, ids in SPLITS.items():
        np.save(folder / "split" / f"{name}.npy", np.array(ids))
    about = {"target": "paper", "nodes": {name: {"count": count} for name, count in COUNTS.items()}}
    (folder / "meta.json").write_text(json.dumps(about))
    return folder


def check_small(graph, *, splits=True, edges=EDGES):
    """Assert that `graph` is the one above, whatever format it came in."""
    from tests.support.typed_graphs import named_edges

    types = {each.name: t for t, each in enumerate(graph.types.vertices)}
    assert {each.name: each.vertices for each in graph.types.vertices} == COUNTS
    kept = {str(each) for each in graph.types.relations if each.reverse_of is None}
    assert {edge for edge in named_edges(graph) if edge[0] in kept} == distinct(edges)
    for name, t in types.items():
        features = graph.typed.features[t]
        assert (features is None) == (name not in FEATURES)
        if features is not None:
            assert np.array_equal(features.astype(np.float32), FEATURES[name].astype(np.float32))
    assert graph.types.target == "paper"
    rows = slice(*graph.typed.offsets[types["paper"] : types["paper"] + 2])
    assert graph.labels[rows].tolist() == LABELS.tolist()
    assert (np.delete(graph.labels, np.r_[rows]) == -1).all()
    if splits:
        assert [np.flatnonzero(graph.split[rows] == code).tolist() for code in (1, 2, 3)] == list(SPLITS.values())
