"""Typed edges as roots: their relations and order, negatives of both ends, and draws that leave them out."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.sampling.candidates import HardLists
from leapmpi.sampling.negative_sampler import NEGATIVES
from leapmpi.sampling.training_edges import BatchEdges, TrainingEdges, target_relations
from leapmpi.sampling.typed_negatives import DESTINATION, SOURCE, TypedNegatives
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.typed_draws import SCHOLARS, TYPED, made, typed_topology

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 7, 1, 2)
WRITES, CITES, WRITTEN_BY, NAMES, REVIEWS, HEADS = range(6)
TARGETS = np.array([r in (WRITES, CITES, REVIEWS) for r in range(6)])


@pytest.fixture(scope="module")
def whole():
    """A topology in which `written_by` has the reverses of `writes`."""
    topology = typed_topology(SCHOLARS, 120, 3)
    triples = triples_of(topology)
    back = triples[triples[:, 2] == WRITES][:, [1, 0]]
    kept = triples[triples[:, 2] != WRITTEN_BY]
    triples = np.concatenate([kept, np.column_stack([back, np.full(len(back), WRITTEN_BY)])])
    triples = triples[np.lexsort((triples[:, 0], triples[:, 2], triples[:, 1]))]
    indptr = np.searchsorted(triples[:, 1], np.arange(topology.vertices + 1)).astype(np.int64)
    arrays = {"edge_weight": None, "weight_sum": None, "edge_time": None}
    relation = triples[:, 2].astype(np.uint8)
    return replace(topology, indptr=indptr, indices=triples[:, 0].astype(np.int32), relation=relation, **arrays)


def triples_of(topology) -> np.ndarray:
    """All edges int64[m, 3]: source, destination, relation."""
    destinations = np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))
    return np.stack([topology.indices, destinations, topology.relation], axis=1).astype(np.int64)


def batch_of(topology, triples: np.ndarray) -> BatchEdges:
    ends = triples[:, :2]
    return BatchEdges(ends, topology.original_id[ends], relations=triples[:, 2])


def test_targets_join_the_types_of_edges_held_back():
    nothing = np.empty((0, 2), np.int64)
    one = {"val_relation": np.array([REVIEWS], np.uint8), "test_relation": np.empty(0, np.uint8)}
    splits = EdgeSplits(np.array([[60, 0]]), nothing, **one)
    assert np.flatnonzero(target_relations(SCHOLARS, splits)).tolist() == [WRITES, REVIEWS]
    assert np.flatnonzero(target_relations(SCHOLARS, None)).tolist() == [WRITES, CITES, NAMES, REVIEWS, HEADS]


def test_an_epoch_visits_each_target_edge_once_with_its_relation(whole):
    edges = TrainingEdges(whole, False, TARGETS)
    found = np.concatenate(list(edges.batches(3, 1, 50)))
    wanted = {tuple(each) for each in triples_of(whole).tolist() if TARGETS[each[2]]}
    assert len(found) == len(edges) == len(wanted)
    assert {tuple(each) for each in found.tolist()} == wanted
    assert not np.array_equal(found, np.concatenate(list(edges.batches(3, 2, 50))))


@pytest.mark.parametrize("replaced", [SOURCE, DESTINATION])
def test_hard_negatives_belong_to_an_end_and_its_relation(replaced, whole):
    triples = triples_of(whole)
    known = {tuple(each) for each in triples.tolist()}
    cites = triples[triples[:, 2] == CITES]
    # Edges that are false: each source of a citation with the destinations of the next ones.
    pairs = [
        (u, v, CITES) for shift in (1, 2, 3) for u, v in zip(cites[:, 0], np.roll(cites[:, 1], shift), strict=True)
    ]
    false = np.array(sorted({each for each in pairs if each not in known and each[0] != each[1]}))
    original = whole.original_id[false[:, :2]]
    lists = HardLists(np.stack([original[:, 0], false[:, 2], original[:, 1]], axis=1), whole)
    kind = partial(NEGATIVES.load("hard").sampler, lists=lists)

    edges = triples[np.isin(triples[:, 2], [CITES, REVIEWS])]
    found = TypedNegatives(kind, whole).draw(KEY, batch_of(whole, edges), 4, replaced)
    uniform = TypedNegatives(NEGATIVES.load("uniform").sampler, whole).draw(KEY, batch_of(whole, edges), 4, replaced)
    of_file = {(int(stays), CITES): set() for stays in false[:, 1 - replaced]}
    for each in false.tolist():
        of_file[each[1 - replaced], CITES].add(each[replaced])
    named = 0
    for edge, row, other in zip(edges.tolist(), found.tolist(), uniform.tolist(), strict=True):
        if (edge[1 - replaced], edge[2]) in of_file:
            named += 1
            assert set(row) <= of_file[edge[1 - replaced], edge[2]]
        else:
            assert row == other
    assert named > 10


@pytest.mark.parametrize("replaced", [SOURCE, DESTINATION])
@pytest.mark.parametrize("name", ["uniform", "degree", "in-batch"])
def test_negatives_have_the_type_of_the_end_and_make_no_edge(name, replaced, whole):
    triples = triples_of(whole)
    edges, known = triples[TARGETS[triples[:, 2]]][::3], {tuple(each) for each in triples.tolist()}
    found = TypedNegatives(NEGATIVES.load(name).sampler, whole).draw(KEY, batch_of(whole, edges), 4, replaced)
    made_edges = np.repeat(edges, 4, axis=0)
    made_edges[:, replaced] = found.reshape(-1)
    wanted = SCHOLARS.ends[made_edges[:, 2], replaced]
    assert np.array_equal(SCHOLARS.of_original(whole.original_id[found.reshape(-1)]), wanted)
    # The end that stays is a candidate like others: no relation joins a vertex with itself here.
    wrong = sum(tuple(each) in known for each in made_edges.tolist())
    assert wrong <= (0 if name == "uniform" else 0.03 * len(made_edges))
    # The draws of an edge do not depend on the others of the batch, but for those among them.
    some = TypedNegatives(NEGATIVES.load(name).sampler, whole).draw(KEY, batch_of(whole, edges[:5]), 4, replaced)
    assert name == "in-batch" or np.array_equal(some, found[:5])


def test_negatives_are_the_same_vertices_in_any_numbering(whole):
    new = np.random.default_rng(1).permutation(whole.vertices)
    triples = triples_of(whole)
    turned = np.column_stack([new[triples[:, 0]], new[triples[:, 1]], triples[:, 2]])
    original = np.empty_like(whole.original_id)
    original[new] = whole.original_id
    turned = turned[np.lexsort((original[turned[:, 0]], turned[:, 2], turned[:, 1]))]
    indptr = np.searchsorted(turned[:, 1], np.arange(whole.vertices + 1)).astype(np.int64)
    arrays = {"indices": turned[:, 0].astype(np.int32), "relation": turned[:, 2].astype(np.uint8)}
    other = replace(whole, indptr=indptr, original_id=original, **arrays)
    edges = triples[TARGETS[triples[:, 2]]][::4]
    same = np.column_stack([new[edges[:, 0]], new[edges[:, 1]], edges[:, 2]])
    for name in ("uniform", "degree", "shared"):
        kind = NEGATIVES.load(name).sampler
        for replaced in (SOURCE, DESTINATION):
            here, there = TypedNegatives(kind, whole), TypedNegatives(kind, other)
            if kind.shared:
                found = here.draw_shared(KEY, batch_of(whole, edges), 3, replaced)
                also = there.draw_shared(KEY, batch_of(other, same), 3, replaced)
                assert [new[each].tolist() for each in found.lists] == [each.tolist() for each in also.lists]
                continue
            found = here.draw(KEY, batch_of(whole, edges), 3, replaced)
            also = there.draw(KEY, batch_of(other, same), 3, replaced)
            assert np.array_equal(new[found], also), name


@pytest.mark.parametrize("name", ["shared", "all"])
def test_shared_negatives_are_those_of_all_ends_of_a_type(name, whole):
    triples = triples_of(whole)
    edges = triples[TARGETS[triples[:, 2]]]
    draws = TypedNegatives(NEGATIVES.load(name).sampler, whole)
    lists: dict[int, set[tuple[int, ...]]] = {}
    for replaced in (SOURCE, DESTINATION):
        found = draws.draw_shared(KEY, batch_of(whole, edges), 4, replaced)
        for r, group in zip(edges[:, 2], found.groups.tolist(), strict=True):
            lists.setdefault(int(SCHOLARS.ends[r, replaced]), set()).add(tuple(found.lists[group].tolist()))
        # Those of `all` count as published, edges among them too.
        assert (found.known is None) == (name == "all")
    # Papers and authors are ends of these edges, and each type has one list.
    assert len(lists) == 2
    for kind, (found,) in ((kind, each) for kind, each in lists.items()):
        of_type = np.flatnonzero(SCHOLARS.of_original(whole.original_id) == kind).tolist()
        assert set(found) <= set(of_type)
        assert len(found) == 4 if name == "shared" else sorted(found) == of_type


@pytest.mark.parametrize("replaced", [SOURCE, DESTINATION])
def test_shared_negatives_say_which_of_them_make_edges_of_training(replaced, whole):
    triples = triples_of(whole)
    edges, known = triples[TARGETS[triples[:, 2]]], {tuple(each) for each in triples.tolist()}
    found = TypedNegatives(NEGATIVES.load("shared").sampler, whole).draw_shared(
        KEY, batch_of(whole, edges), 60, replaced
    )
    counting = TypedNegatives(NEGATIVES.load("shared").sampler, whole, known_count=True)
    assert counting.draw_shared(KEY, batch_of(whole, edges), 60, replaced).known is None
    assert found.known is not None
    assert found.known.shape == (len(edges), 60)
    for edge, group, says in zip(edges.tolist(), found.groups.tolist(), found.known.tolist(), strict=True):
        for vertex, says_known in zip(found.lists[group].tolist(), says, strict=True):
            made_edge = edge.copy()
            made_edge[replaced] = vertex
            assert says_known == (tuple(made_edge) in known)
    # Others than the edge itself are among them.
    assert found.known.sum() > sum(
        edge[replaced] in found.lists[g] for edge, g in zip(edges.tolist(), found.groups, strict=True)
    )


@pytest.mark.parametrize("kind", [each for each in TYPED if not each.startswith("temporal")])
def test_draws_leave_out_target_edges_and_reverses_by_relation(kind, whole):
    if kind.startswith("weighted"):
        whole = replace(whole, edge_weight=np.ones(whole.edges, np.float32))
    triples = triples_of(whole)
    targets = triples[TARGETS[triples[:, 2]]][::2]
    sampler = made(kind, whole, fanouts=(-1, -1) if kind.startswith("node-wise") else (4, 3))
    sampler.leave_out(KEY, targets)
    back = targets[targets[:, 2] == WRITES][:, [1, 0]]
    gone = {tuple(each) for each in targets.tolist()} | {(*each, WRITTEN_BY) for each in back.tolist()}
    seen = set()
    for block in sampler.sample(KEY, np.arange(whole.vertices)):
        destinations = np.repeat(block.dst, np.diff(block.indptr))
        edges = np.stack([block.src[block.indices], destinations, block.relation], axis=1)
        seen |= {tuple(each) for each in edges.tolist()}
    known = {tuple(each) for each in triples.tolist()}
    assert seen <= known - gone
    if kind == "node-wise":
        # All others are drawn, also those between the same ends by another relation.
        assert seen == known - gone
