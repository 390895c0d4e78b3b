"""Typed graphs in files and datasets: what is written is read, independently of the partition, and faults are named."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType, reached
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify, verify_graph
from leapmpi.errors import DataError
from tests.support.typed_graphs import LIBRARY, named_edges, typed_graph

DTYPES = ("float32", "float16", "bfloat16", "int8")


@st.composite
def schemas(draw):
    """Schemas of one to four types and one to five relations, some without features or edges."""
    count = draw(st.integers(1, 4))
    types = []
    for t in range(count):
        dtype = draw(st.sampled_from((None, *DTYPES)))
        types.append(VertexType(f"type {t}/é", draw(st.integers(1, 8)), draw(st.integers(1, 5)) if dtype else 0, dtype))
    ends = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), min_size=1, max_size=4))
    relations = [Relation(types[s].name, f"r{r}", types[d].name) for r, (s, d) in enumerate(ends)]
    first = relations[0]
    relations.append(Relation(first.destination, "back", first.source, 0))
    return GraphTypes(tuple(types), tuple(relations), draw(st.sampled_from((None, *(each.name for each in types)))))


def write_parts(folder, graph, assignment, parts, **fields):
    write_dataset(folder, graph, assignment, parts, method="test", figures={}, seed=0, **fields)
    return open_dataset(folder, typed=True)


def check_same(found, graph):
    """Assert that two graphs or parts hold the same."""
    assert found.types == graph.types
    for name, array in graph.arrays().items():
        if array is not None:
            assert found.arrays()[name].dtype == array.dtype
            assert np.array_equal(found.arrays()[name], array), name


@settings(max_examples=25, deadline=None)
@given(schemas(), st.integers(0, 30), st.integers(0, 2**16), st.booleans(), st.integers(1, 4))
def test_what_is_written_is_read(tmp_path_factory, types, edges, seed, gaps, parts):
    graph = typed_graph(types, edges, seed, gaps)
    tmp_path = tmp_path_factory.mktemp("typed")
    write_graph(tmp_path / "g.h5", graph)
    found = verify_graph(tmp_path / "g.h5")
    check_same(found, graph)
    assert found.uuid == content_uuid(graph)

    # Every partition has the same content.
    random = np.random.default_rng(seed)
    parts = min(parts, graph.vertices)
    assignment = random.permutation(np.arange(graph.vertices) % parts)
    order = random.permutation(graph.vertices) if seed % 2 else None
    dataset = write_parts(tmp_path / "data", found, assignment, parts, communities=order)
    verify(dataset)
    assert (dataset.graph_uuid, dataset.types) == (found.uuid, types)
    original = np.concatenate([dataset.part(p).original_id for p in range(parts)])
    assert set().union(*(named_edges(dataset.part(p), original) for p in range(parts))) == named_edges(graph)
    assert dataset.relation_edges.tolist() == graph.relation_edges().tolist()
    for p in range(parts):
        part = dataset.part(p)
        for t, features in enumerate(part.typed.features):
            ids = part.original_id[part.typed.offsets[t] : part.typed.offsets[t + 1]]
            assert ((ids >= types.bases[t]) & (ids < types.bases[t + 1])).all()
            if features is not None:
                rows = np.searchsorted(graph.original_id, ids) - graph.typed.offsets[t]
                assert np.array_equal(features, graph.typed.features[t][rows])


def test_lists_of_a_part_ascend_by_relation_then_original_id(tmp_path):
    graph = typed_graph(edges=60)
    dataset = write_parts(tmp_path / "data", graph, np.arange(graph.vertices) * 7 % 3, 3)
    original = np.concatenate([dataset.part(p).original_id for p in range(3)])
    for p in range(3):
        part = dataset.part(p)
        for v in range(part.vertices):
            edges = slice(part.indptr[v], part.indptr[v + 1])
            keys = list(
                zip(part.edge_data.relation[edges].tolist(), original[part.indices[edges]].tolist(), strict=True)
            )
            assert keys == sorted(set(keys))


def test_layout_is_as_documented(tmp_path):
    """Read by plain h5py, as FORMAT.md describes it."""
    graph = typed_graph()
    write_graph(tmp_path / "g.h5", graph)
    with h5py.File(tmp_path / "g.h5") as file:
        assert (file.attrs["format_version"], file.attrs["vertex_types"], file.attrs["relations"]) == (7, 3, 5)
        assert file.attrs["feature_dim"] == 0
        schema = json.loads(file["schema"][:].tobytes())
        assert [each["name"] for each in schema["vertex_types"]] == ["paper", "author", "field"]
        assert schema["relations"][2] == {
            "source": "paper", "name": "rev_writes", "destination": "author", "reverse_of": 0,
        }  # fmt: skip
        assert schema["target"] == "paper"
        assert file["type_offsets"][:].tolist() == [0, 9, 16, 19]
        assert file["types/0/features"].shape == (9, 4)
        assert file["types/2/features"].dtype == np.float16
        assert "types/1/features" not in file
        assert "features" not in file
        assert file["relation"].dtype == np.uint8


def test_more_than_256_relations_take_two_bytes(tmp_path):
    relations = tuple(Relation("paper", f"r{r}", "paper") for r in range(300))
    graph = typed_graph(GraphTypes((VertexType("paper", 9),), relations), edges=2)
    write_graph(tmp_path / "g.h5", graph)
    assert verify_graph(tmp_path / "g.h5").edge_data.relation.dtype == np.uint16


def test_identity_depends_on_schema_relations_and_features(tmp_path):
    graph = typed_graph()
    renamed = replace(LIBRARY, relations=(replace(LIBRARY.relations[0], name="wrote"), *LIBRARY.relations[1:]))
    relation = graph.edge_data.relation.copy()
    relation[np.flatnonzero(relation == 3)[0]] = 1
    features = (graph.typed.features[0] + 1, *graph.typed.features[1:])
    others = [
        replace(graph, typed=replace(graph.typed, types=renamed)),
        replace(graph, edge_data=replace(graph.edge_data, relation=relation)),
        replace(graph, typed=replace(graph.typed, features=features)),
    ]
    assert len({content_uuid(each) for each in (graph, *others)}) == 4


def test_what_edges_carry_stays_beside_them(tmp_path):
    count = typed_graph().edges
    weight = np.arange(count, dtype=np.float32)
    graph = typed_graph(edge_data={"weight": weight})
    dataset = write_parts(tmp_path / "data", graph, np.arange(graph.vertices) % 2, 2)
    verify(dataset)
    total = sum(dataset.part(p).edge_data.weight.sum() for p in range(2))
    assert total == weight.sum()


def test_training_refuses_types_in_a_sentence(tmp_path):
    graph = typed_graph()
    write_parts(tmp_path / "data", graph, np.arange(graph.vertices) % 2, 2)
    with pytest.raises(DataError, match=r"typed graph \(3 types of vertices, 5 relations\).*a plain one"):
        open_dataset(tmp_path / "data")


@pytest.mark.parametrize(
    ("field", "row", "value", "message"),
    [
        ("relation", 0, 9, "relation 9, which is not in the schema"),
        ("relation", 0, 4, "not of the type that relation 4 joins"),
        ("indices", 0, 99, "is outside 0..18"),
    ],
)
def test_wrong_edges_are_named(tmp_path, field, row, value, message):
    graph = typed_graph()
    changed = (graph.edge_data.relation if field == "relation" else graph.indices).copy()
    changed[row] = value
    wrong = replace(graph, indices=changed) if field == "indices" else None
    wrong = wrong or replace(graph, edge_data=replace(graph.edge_data, relation=changed))
    with pytest.raises(DataError, match=message):
        write_graph(tmp_path / "g.h5", wrong)


def test_order_by_relation_is_checked(tmp_path):
    graph = typed_graph(edges=60)
    row = next(
        v for v in range(graph.vertices) if len(set(graph.edge_data.relation[slice(*graph.indptr[v : v + 2])])) > 1
    )
    edges = slice(graph.indptr[row], graph.indptr[row + 1])
    indices, relation = graph.indices.copy(), graph.edge_data.relation.copy()
    indices[edges], relation[edges] = indices[edges][::-1], relation[edges][::-1]
    wrong = replace(graph, indices=indices, edge_data=replace(graph.edge_data, relation=relation))
    with pytest.raises(DataError, match="ascend by relation, then original id"):
        write_graph(tmp_path / "g.h5", wrong)


def test_labels_and_splits_of_other_types_are_refused(tmp_path):
    graph = typed_graph()
    for name in ("labels", "split"):
        array = getattr(graph, name).copy()
        array[-1] = 1
        if name == "split":
            graph.labels[-1] = 1
        with pytest.raises(DataError, match="type field is not the target type"):
            write_graph(tmp_path / "g.h5", replace(graph, **{name: array}))
        graph.labels[-1] = -1


def test_ids_outside_their_type_are_named(tmp_path):
    graph = typed_graph()
    offsets = graph.typed.offsets.copy()
    offsets[1] += 1
    wrong = replace(graph, typed=replace(graph.typed, offsets=offsets))
    with pytest.raises(DataError, match=r"original_id, row 9 is 9, but those of type paper are 0..8"):
        write_graph(tmp_path / "g.h5", wrong)


@pytest.mark.parametrize("name", ["schema", "relation", "type_offsets", "types/0/features"])
def test_damage_is_found(tmp_path, name):
    graph = typed_graph()
    write_graph(tmp_path / "g.h5", graph)
    with h5py.File(tmp_path / "g.h5") as file:
        offset = file[name].id.get_offset()
    with (tmp_path / "g.h5").open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(DataError, match=name if name != "relation" else "relation|indices"):
        verify_graph(tmp_path / "g.h5")


def with_held_back(graph, count=3):
    """The graph without every sixth edge of `author writes paper` and its reverses, which are held back for test."""
    types, keep, held = graph.types, np.ones(graph.edges, bool), []
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    for e in np.flatnonzero(graph.edge_data.relation == 0)[::6][:count]:
        held.append((int(graph.indices[e]), int(destination[e])))
        back = (graph.edge_data.relation == types.reverses[0]) & (destination == graph.indices[e])
        keep[e] = False
        keep[back & (graph.indices == destination[e])] = False
    indptr = np.concatenate([[0], np.cumsum(np.bincount(destination[keep], minlength=graph.vertices))]).astype(np.int64)
    edges = np.array(held, np.int64).reshape(-1, 2)
    splits = EdgeSplits(
        np.empty((0, 2), np.int64),
        edges,
        val_relation=np.empty(0, np.uint8),
        test_relation=np.zeros(len(edges), np.uint8),
    )
    data = replace(graph.edge_data, relation=graph.edge_data.relation[keep])
    return replace(graph, indptr=indptr, indices=graph.indices[keep], edge_data=data, edge_splits=splits, uuid=None)


def test_edges_are_held_back_by_relation(tmp_path):
    graph = with_held_back(typed_graph(edges=60))
    assert len(graph.edge_splits.test) == 3
    write_graph(tmp_path / "g.h5", graph)
    assert verify_graph(tmp_path / "g.h5").uuid == content_uuid(graph)
    dataset = write_parts(tmp_path / "data", graph, np.arange(graph.vertices) * 5 % 3, 3)
    verify(dataset)
    original = np.concatenate([dataset.part(p).original_id for p in range(3)])
    assert original[dataset.edge_splits.test].tolist() == graph.original_id[graph.edge_splits.test].tolist()
    assert dataset.edge_splits.test_relation.tolist() == [0, 0, 0]


@pytest.mark.parametrize("backwards", [False, True])
def test_edges_held_back_are_not_in_the_topology(tmp_path, backwards):
    """Neither an edge that is held back, nor its reverse under the reverse relation; under others it may stay."""
    whole = typed_graph(edges=60)
    graph = with_held_back(whole)
    relation = 2 if backwards else 0
    visible = replace(whole, edge_splits=graph.edge_splits)
    source, destination = graph.edge_splits.test[0].tolist()
    row, other = (source, destination) if backwards else (destination, source)
    if backwards:
        # One reverse edge goes back into the topology, and nothing else.
        at = int(graph.indptr[row])
        at += int(np.searchsorted(graph.indices[at : graph.indptr[row + 1]], other))
        indptr = graph.indptr.copy()
        indptr[row + 1 :] += 1
        data = replace(graph.edge_data, relation=np.insert(graph.edge_data.relation, at, relation))
        visible = replace(graph, indptr=indptr, indices=np.insert(graph.indices, at, other), edge_data=data)
    write_graph(tmp_path / "g.h5", visible)
    with pytest.raises(DataError, match="edge_splits/test, row 0, or its reverse"):
        verify_graph(tmp_path / "g.h5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_relation": np.array([0, 9, 0], np.uint8)}, "test_relation, row 1 is 9"),
        ({"test_relation": np.array([0, 4, 0], np.uint8)}, "row 1 is not of the types of relation author:chairs:field"),
    ],
)
def test_wrong_edges_held_back_are_named(tmp_path, change, message):
    graph = with_held_back(typed_graph(edges=60))
    write_graph(tmp_path / "g.h5", replace(graph, edge_splits=replace(graph.edge_splits, **change)))
    with pytest.raises(DataError, match=message):
        verify_graph(tmp_path / "g.h5")


def test_order_of_edges_held_back_is_checked(tmp_path):
    graph = with_held_back(typed_graph(edges=60))
    splits = replace(graph.edge_splits, test=graph.edge_splits.test[::-1].copy())
    write_graph(tmp_path / "g.h5", replace(graph, edge_splits=splits))
    with pytest.raises(DataError, match="ascend by destination, relation and source"):
        verify_graph(tmp_path / "g.h5")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (lambda: VertexType("", 3), "no name"),
        (lambda: VertexType("a", 3, 4), "4 features of type None"),
        (lambda: replace(LIBRARY, vertices=LIBRARY.vertices * 2), "'paper' twice"),
        (lambda: replace(LIBRARY, relations=LIBRARY.relations[:1] * 2), "'author:writes:paper' twice"),
        (lambda: replace(LIBRARY, vertices=LIBRARY.vertices[:2]), "'field', which no vertices have"),
        (lambda: replace(LIBRARY, target="venue"), "target type 'venue'"),
        (lambda: replace(LIBRARY, relations=(Relation("paper", "x", "author", 0),)), "marked as the reverse"),
    ],
)
def test_impossible_schemas_are_refused(types, message):
    with pytest.raises(DataError, match=message):
        types()


@settings(max_examples=100, deadline=None)
@given(schemas(), st.integers(1, 4), st.integers(0, 2**16))
def test_a_relation_is_drawn_where_the_targets_reach_its_destination(types, hops, seed):
    random = np.random.default_rng(seed)
    kept = random.random((hops, len(types.relations))) < 0.8
    found = reached(types, [0], hops, kept)
    names = {types.vertices[0].name}
    for hop in range(hops):
        assert {each.name for each, here in zip(types.vertices, found.types[hop], strict=True) if here} == names
        drawn = [kept[hop, r] and each.destination in names for r, each in enumerate(types.relations)]
        assert found.relations[hop].tolist() == drawn
        names = names | {each.source for each, here in zip(types.relations, drawn, strict=True) if here}
    assert found.types[hops].sum() == len(names)


def test_a_type_without_in_edges_needs_no_draws():
    found = reached(LIBRARY, [1], 2)
    assert found.relations.tolist() == [[False, False, True, False, False], [True, True, True, True, False]]
    assert found.types.tolist() == [[False, True, False], [True, True, False], [True, True, False]]


def test_the_type_of_an_original_id_is_that_of_its_range():
    assert LIBRARY.of_original(np.array([0, 8, 9, 15, 16, 18])).tolist() == [0, 0, 1, 1, 2, 2]
