"""Scores and messages of heads over relations, and their gradients, against sums over edges in double precision."""

import numpy as np
import pytest
import torch

from leapmpi.nn.tensors import Edges, RelationGroups
from leapmpi.nn.typed import relation_products
from leapmpi.nn.typed.relation_attention import ReadEdges
from leapmpi.nn.typed.relation_products import own_rows, relation_messages, relation_scores
from leapmpi.nn.typed.whole_rows import products_with_rows
from leapmpi.system.worker_threads import set_threads

pytestmark = pytest.mark.compiles

RELATIONS = 5
SHAPES = {"tiles": (4, 64, 16), "narrow heads": (2, 32, 6), "one head": (1, 16, 20), "odd columns": (3, 20, 4)}
"""Heads, columns of sources, columns of a head."""


@pytest.fixture(autouse=True)
def _one_thread_afterwards():
    yield
    set_threads(1)


def read_edges(destinations, sources, most, seed=3):
    """Edges of random lists, some of them empty; the layer's relation 2 has none."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, most + 1, destinations)
    present = np.array([0, 1, 3, 4])
    relation = np.concatenate([np.sort(random.choice(present, count)) for count in counts] or [[]]).astype(np.uint8)
    indptr = torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64))
    indices = torch.from_numpy(random.integers(0, max(1, sources), len(relation)).astype(np.int32))
    edges = Edges(indptr, indices, sources)
    groups = RelationGroups.of(edges, torch.from_numpy(relation))
    return ReadEdges(edges, groups, torch.from_numpy(relation).long()[groups.order], tuple(groups.relations), None)


def operands(read, heads, columns, width, dtype):
    generator = torch.Generator().manual_seed(7)
    shapes = (
        (read.edges.sources, columns),
        (read.groups.destinations, heads * width),
        (len(read.edges.indices), heads),
        (RELATIONS, heads, columns, width),
        (RELATIONS, heads, width, columns),
    )
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [each.to(dtype).requires_grad_() for each in made]


def with_gradients(scores, messages, operands):
    """Scores, messages, and the gradients of a sum of them with respect to all operands."""
    factors = [torch.linspace(-1, 1, each.numel(), dtype=each.dtype).view_as(each) for each in (scores, messages)]
    total = (scores * factors[0]).sum() + (messages * factors[1]).sum()
    return scores, messages, *torch.autograd.grad(total, operands)


def computed(read, z, x, share, matrices, values):
    scores, passed = relation_scores(read, z, x, matrices)
    messages = relation_messages(read, passed, share, values)
    return with_gradients(scores, messages, (z, x, share, matrices, values))


def defined(read, z, x, share, matrices, values):
    """The same by a matrix for each edge."""
    heads = share.shape[1]
    sources, destinations, relation = read.sources, read.destinations, read.relation
    of_edges, mine = z[sources], x.unflatten(1, (heads, -1))[destinations]
    scores = torch.einsum("ec,ehcw,ehw->eh", of_edges, matrices[relation], mine)
    each = torch.einsum("ehwc,ec,eh->ehw", values[relation], of_edges, share).flatten(1)
    messages = each.new_zeros(read.groups.destinations, each.shape[1]).index_add(0, destinations, each)
    return with_gradients(scores, messages, (z, x, share, matrices, values))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "lists", [(90, 200, 9), (1, 3, 1), (30, 5, 60), (4, 4, 0)], ids=["many", "one", "hubs", "no edge"]
)
def test_they_are_those_of_the_definition(name, lists):
    read = read_edges(*lists)
    wanted = defined(read, *operands(read, *SHAPES[name], torch.float64))
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        found = computed(read, *operands(read, *SHAPES[name], dtype))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SHAPES)
def test_tiles_have_the_bits_of_plain_products_on_any_threads(name, monkeypatch):
    read = read_edges(120, 300, 12)
    given = operands(read, *SHAPES[name], torch.float32)
    by_tiles = computed(read, *given)
    set_threads(2)
    for one, other in zip(computed(read, *given), by_tiles, strict=True):
        assert torch.equal(one, other)
    set_threads(1)
    monkeypatch.setattr(relation_products, "_serves_tiles", lambda z: False)
    for one, other in zip(computed(read, *given), by_tiles, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("others", [True, False])
def test_gradients_of_own_rows_join_those_of_other_readers(others):
    z = torch.randn(9, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    rows = torch.tensor([5, 0, 3])
    own, passed = own_rows(z, rows)
    assert torch.equal(own, z[rows])
    found = own.sin().sum() + ((passed**2).sum() + passed.exp().sum() if others else 0)
    wanted = z[rows].sin().sum() + ((z**2).sum() + z.exp().sum() if others else 0)
    torch.testing.assert_close(*(torch.autograd.grad(each, z)[0] for each in (found, wanted)), rtol=0, atol=1e-14)


def test_operands_that_need_no_gradient_get_none():
    read = read_edges(20, 40, 5)
    z, x, share, matrices, values = operands(read, *SHAPES["tiles"], torch.float32)
    relation_scores(read, z.detach(), x.detach(), matrices)[0].sum().backward()
    relation_messages(read, z.detach(), share, values.detach()).sum().backward()
    found = [each.grad is not None for each in (z, x, share, matrices, values)]
    assert found == [False, False, True, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_runs_of_a_relation_multiply_sources_by_its_rows(dtype, monkeypatch):
    # Runs end within a relation too.
    monkeypatch.setattr("leapmpi.nn.typed.relation_attention._RUN", 17)
    read = read_edges(60, 90, 8)
    runs, places = read.runs
    z = operands(read, 2, 32, 6, dtype)[0]
    rows = torch.randn(RELATIONS, 2, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    rows.requires_grad_()
    found, passed = products_with_rows(runs, z, rows.flatten(1).index_select(0, places))
    wanted = torch.einsum("ec,ehc->eh", z.double()[read.sources], rows.double()[read.relation])
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(found.sin().sum() + (passed**2).sum(), (z, rows)),
        torch.autograd.grad(wanted.sin().sum() + (z**2).sum(), (z, rows)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [1, 4])
def test_softmaxes_across_relations_have_the_bits_of_the_order_of_destinations(dtype, heads):
    read, random = read_edges(90, 200, 9), torch.Generator().manual_seed(5)
    score, grad = torch.randn(2, len(read.edges.indices), heads, generator=random, dtype=torch.float64).to(dtype) * 30
    score.requires_grad_()
    found = read.softmax_across(score)
    change = torch.autograd.grad(found, score, grad)[0]
    # More threads than one share destinations.
    set_threads(2)
    wanted = read.softmax_across(score)
    assert torch.equal(found, wanted)
    assert torch.equal(change, torch.autograd.grad(wanted, score, grad)[0])
    sums = torch.zeros(len(read.edges.indptr) - 1, heads, dtype=dtype).index_add(0, read.destinations, found)
    torch.testing.assert_close(sums, (read.edges.counts > 0).to(dtype).unsqueeze(1).expand_as(sums))
