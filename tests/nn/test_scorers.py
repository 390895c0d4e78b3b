"""Scorers against formulas written here, and all candidates at once against single pairs."""

import numpy as np
import pytest
import torch

from leapmpi.errors import ConfigError
from leapmpi.exchange.step_scores import scores_of
from leapmpi.nn.model import initialise
from leapmpi.nn.pair_losses import PAIR_LOSSES
from leapmpi.nn.scorer import SCORERS, build_scorer, checked
from leapmpi.plan.edge_plan import plan_edges
from leapmpi.sampling.replaced_ends import OwnEnds, SharedEnds

WIDTH, RELATIONS = 6, 3


def made(name: str, relations: int = RELATIONS):
    """A scorer in float64, with its parameters away from their initial values."""
    scorer = build_scorer(name, WIDTH, relations=relations).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in scorer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return scorer


def rows(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def complex_of(values: torch.Tensor) -> np.ndarray:
    real, imaginary = np.split(values.detach().numpy(), 2)
    return real + 1j * imaginary


def formula(name: str, scorer, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> float:
    h, r, t = (each.detach() for each in (h, r, t))
    if name == "distmult":
        return float((h * r * t).sum())
    if name == "complex":
        return float((complex_of(h) * complex_of(r) * complex_of(t).conj()).sum().real)
    if name == "transe":
        return float(scorer.margin.detach() - (h + r - t).abs().sum())
    turned = complex_of(h) * np.exp(1j * r.numpy())
    return float(scorer.margin.detach() - np.abs(turned - complex_of(t)).sum())


@pytest.mark.parametrize("name", ["distmult", "complex", "transe", "rotate"])
def test_scores_follow_the_formula(name):
    scorer, source, destination = made(name), rows(5, 2), rows(5, 3)
    relation = torch.tensor([0, 2, 1, 2, 0])
    found = scorer(source, destination, relation)
    for i in range(5):
        wanted = formula(name, scorer, source[i], scorer.relation[relation[i]], destination[i])
        assert found[i].item() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("name", SCORERS.names())
def test_parameters_are_arrays_as_checkpoints_hold_them(name):
    assert all(parameter.dim() >= 1 for parameter in made(name).parameters())


def test_angles_begin_anywhere_in_a_full_turn():
    # Symmetric relations need turns by nothing and by half a circle: both must be near the start.
    scorer = build_scorer("rotate", 2000, relations=RELATIONS)
    initialise(scorer, 0)
    angles = scorer.relation.detach()
    assert angles.abs().max() <= np.pi
    assert (angles.cos() < 0).double().mean().item() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", SCORERS.names())
def test_all_candidates_at_once_score_as_single_pairs(name):
    scorer, few, many = made(name), rows(3, 4), rows(7, 5)
    relation = [torch.tensor([0, 2, 2])] if scorer.relations else []
    ahead, behind = scorer.all_pairs(few, many, *relation), scorer.all_sources(many, few, *relation)
    for i in range(3):
        here = [each[i : i + 1] for each in relation]
        for j in range(7):
            pair = few[i : i + 1], many[j : j + 1]
            assert ahead[i, j].item() == pytest.approx(scorer(*pair, *here).item(), abs=1e-12)
            assert behind[i, j].item() == pytest.approx(scorer(*pair[::-1], *here).item(), abs=1e-12)


def planned(edges, relations, replaced):
    return plan_edges(edges, replaced, 1, 2, None, relations=relations)


def pairs_of(step, ends):
    """Numbers of all pairs of a step: an edge, those with other destinations, those with other sources."""
    (behind, ahead), count = ends, len(step.source)
    source = np.concatenate([np.repeat(step.source[:, None], 1 + behind.shape[1], 1), ahead], axis=1)
    rest = np.repeat(step.destination[:, None], ahead.shape[1], 1)
    return source, np.concatenate([step.destination[:, None], behind, rest], axis=1), count


@pytest.mark.parametrize("name", ["distmult", "rotate"])
@pytest.mark.parametrize("spread", [4, 4000])
def test_a_step_has_the_same_scores_and_gradients_however_it_is_computed(name, spread):
    random, scorer = np.random.default_rng(3), made(name)
    edges = random.integers(0, 40, (9, 2))
    drawn = random.integers(0, spread, (2, 9, 5))
    relations = random.integers(0, RELATIONS, 9)
    plan = planned(edges, relations, [OwnEnds(each) for each in drawn])
    for step in plan.of_rank(0) + plan.of_rank(1):
        ends = [each.ends for each in step.replaced]
        source, destination, count = pairs_of(step, ends)
        embedded = rows(1 + int(max(source.max(), destination.max())), 6).requires_grad_()
        ((found, sources),) = scores_of(scorer, embedded, step)
        numbers = (torch.from_numpy(each.reshape(-1)) for each in (source, destination))
        wanted = scorer(*(embedded[each] for each in numbers), torch.from_numpy(np.repeat(step.relations, 11)))
        assert (sources, found.shape) == (5, (count, 11))
        assert torch.allclose(found.reshape(-1), wanted, rtol=0, atol=1e-12)
        weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64)
        of_found, of_wanted = (
            torch.autograd.grad((each.reshape(-1) * weights).sum(), embedded)[0] for each in (found, wanted)
        )
        assert torch.allclose(of_found, of_wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_shared_negatives_lose_as_those_of_each_edge_without_the_edge_itself(loss, typed):
    # Edges of two kinds; the candidates of either hold ends of some edges.
    random, scorer = np.random.default_rng(4), made("complex", RELATIONS if typed else 0)
    edges, relations = random.integers(0, 12, (10, 2)), random.integers(0, RELATIONS, 10) if typed else None
    groups = [np.arange(10) % 2, np.arange(10) // 5]
    lists = [[np.arange(5), np.arange(20, 23)], [np.arange(3, 9), np.arange(30, 34)]]
    # In a typed graph some candidates make other edges.
    known = [random.random((10, 3)) < 0.3, random.random((10, 4)) < 0.3]
    if typed:
        lists = [[np.arange(3), np.arange(20, 23)], [np.arange(3, 7), np.arange(30, 34)]]
    parts = zip(lists, groups, known if typed else (None, None), strict=True)
    shared = planned(edges, relations, [SharedEnds(*each) for each in parts])
    vertices = rows(40, 7)
    for rank in range(2):
        (step,) = shared.of_rank(rank)
        embedded = vertices[torch.from_numpy(shared.steps[0].cells[rank])].requires_grad_()
        found = sum(
            PAIR_LOSSES[loss](scores, sources) / scores.shape[1]
            for scores, sources in scores_of(scorer, embedded, step)
        )
        wanted = 0.0
        for number in np.flatnonzero(shared.steps[0].scored_by == rank):
            ends, relation = edges[number], torch.tensor([relations[number]]) if typed else None
            head, tail = vertices[ends[:1]], vertices[ends[1:]]
            scores, counts = [scorer(head, tail, relation)], []
            for side, all_of in ((0, scorer.all_pairs), (1, scorer.all_sources)):
                candidates = lists[side][groups[side][number]]
                # A plain graph has no loops; a relation may have some.
                left_out = [ends[1 - side]] if typed else ends
                counts_not = np.isin(candidates, left_out)
                if typed:
                    counts_not |= known[side][number]
                kept = vertices[candidates[~counts_not]]
                each = all_of(head, kept, relation) if side == 0 else all_of(kept, tail, relation)
                scores.append(each[0])
                counts.append((len(kept), len(candidates)))
            columns = torch.cat(scores)[None]
            lost = PAIR_LOSSES[loss](columns, counts[1][0])
            # Losses that are means over an edge's pairs are multiplied by their number.
            mean = loss in ("cross-entropy", "self-adversarial")
            wanted += lost.item() / (columns.shape[1] if mean else 1 + counts[0][1] + counts[1][1])
        assert found.item() == pytest.approx(wanted, rel=1e-12)


def test_losses_follow_their_formulas():
    scores = torch.randn(4, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    edge, negatives = scores[:, 0].numpy(), scores[:, 1:].numpy()
    log_sigmoid = lambda x: -np.log1p(np.exp(-x))  # noqa: E731
    wanted = {
        "binary": -log_sigmoid(edge).sum() - log_sigmoid(-negatives).sum(),
        "margin": np.maximum(0, 1 + negatives - edge[:, None]).sum(),
    }
    half = [np.exp(negatives[:, :3]).sum(axis=1), np.exp(negatives[:, 3:]).sum(axis=1)]
    wanted["cross-entropy"] = 7 * sum((np.log(np.exp(edge) + each) - edge).sum() for each in half)
    weights = np.exp(negatives) / np.exp(negatives).sum(axis=1, keepdims=True)
    adversarial = -log_sigmoid(edge) - (weights * log_sigmoid(-negatives)).sum(axis=1)
    wanted["self-adversarial"] = 3.5 * adversarial.sum()
    assert {name: loss(scores, 3).item() for name, loss in PAIR_LOSSES.items()} == pytest.approx(wanted)


def test_an_odd_width_makes_no_complex_numbers():
    for name in ("complex", "rotate"):
        with pytest.raises(ConfigError, match=f"{name} reads pairs of columns, and --hidden is 5; give an even number"):
            build_scorer(name, 5, relations=2)


def test_a_reciprocal_scorer_ranks_sources_by_vectors_of_reversed_relations():
    random, scorer = np.random.default_rng(5), made("complex-reciprocal")
    edges, relations = random.integers(0, 12, (6, 2)), random.integers(0, RELATIONS, 6)
    drawn = random.integers(0, 12, (2, 6, 4))
    step, *_ = planned(edges, relations, [OwnEnds(each) for each in drawn]).of_rank(0)
    embedded = rows(40, 8)
    behind, ahead = scores_of(scorer, embedded, step)
    assert (behind.sources, ahead.sources) == (0, 0)
    for i in range(len(step.source)):
        for j in range(5):
            tail = step.destination[i] if j == 0 else step.replaced[0].ends[i, j - 1]
            head = step.source[i] if j == 0 else step.replaced[1].ends[i, j - 1]
            of_tails, of_heads = (each.relation[step.relations[i]] for each in (scorer.ahead, scorer.back))
            wanted = formula("complex", scorer, embedded[step.source[i]], of_tails, embedded[tail])
            assert behind.scores[i, j].item() == pytest.approx(wanted, abs=1e-9)
            wanted = formula("complex", scorer, embedded[step.destination[i]], of_heads, embedded[head])
            assert ahead.scores[i, j].item() == pytest.approx(wanted, abs=1e-9)


def test_a_plain_graph_has_no_relations_to_reverse():
    with pytest.raises(ConfigError, match="a plain graph has no relations to reverse"):
        build_scorer("distmult-reciprocal", WIDTH)


@pytest.mark.parametrize(
    ("scores", "shape", "sentence"),
    [
        (None, (5,), r"returned NoneType and not real numbers of shape \[5\]"),
        (1.0, (5,), "returned float and not"),
        (torch.zeros(5, 2), (5,), r"returned float32 of shape \[5, 2\] and not real numbers of shape \[5\]"),
        (torch.zeros(()), (5,), r"returned float32 of shape \[\] and not"),
        (torch.zeros(5, dtype=torch.int64), (5,), r"returned int64 of shape \[5\] and not"),
        (torch.zeros(4), (5, -1), r"returned float32 of shape \[4\] and not"),
        (torch.zeros(5, 2, 2), (5, -1), r"returned float32 of shape \[5, 2, 2\] and not"),
        (torch.zeros(5, 2), (5, 3), r"returned float32 of shape \[5, 2\] and not real numbers of shape \[5, 3\]"),
    ],
)
def test_scores_of_another_shape_or_type_get_a_sentence(scores, shape, sentence):
    with pytest.raises(ConfigError, match=f"link.scorer: Dot {sentence}"):
        checked(build_scorer("dot", WIDTH), scores, *shape)


def test_scores_of_classes_are_one_or_one_of_each():
    for scores in (torch.zeros(5), torch.zeros(5, 2)):
        assert checked(build_scorer("dot", WIDTH), scores, 5, -1) is scores
