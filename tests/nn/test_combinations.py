"""Shares of an aggregate, combined: what all ranks' shares give is what one rank would compute, gradients included."""

import pytest
import torch

from leapmpi.nn.share_forms import (
    MAXIMUM,
    SOFTMAX,
    SUM,
    MaximumCombination,
    SoftmaxCombination,
    SumCombination,
    attention,
)

DESTINATIONS, WIDTH, RANKS = 5, 3, 3


@pytest.fixture
def shares():
    """float[ranks, destinations, width], with ties between ranks and a destination that no rank has a share of."""
    torch.manual_seed(1)
    values = torch.randn(RANKS, DESTINATIONS, WIDTH, dtype=torch.float64).mul(2).round()
    values[:, 3] = -torch.inf
    values[1:, 4] = -torch.inf
    return values


def test_sums_add_up_and_every_share_gets_the_whole_gradient():
    torch.manual_seed(2)
    local, arrived = torch.randn(4, WIDTH), torch.randn(3, WIDTH)
    positions = torch.tensor([2, 0, 2])
    combined = SumCombination(local, None, 4)
    combined.add(arrived, positions)
    expected = local.clone()
    for row, position in zip(arrived, positions.tolist(), strict=True):
        expected[position] += row
    torch.testing.assert_close(combined.rows, expected)
    gradient = torch.randn(4, WIDTH)
    assert torch.equal(combined.local_gradient(gradient), gradient)
    assert torch.equal(combined.arrived_gradient(gradient), gradient[positions])


def combined_maxima(shares):
    """Rank 0's combination of all shares; destinations 0, 2 and 4 are its own, the others those of rank 1."""
    mine, theirs = torch.tensor([0, 2, 4]), torch.tensor([1, 3])
    self_parts = torch.arange(DESTINATIONS * WIDTH, dtype=torch.float64).reshape(DESTINATIONS, WIDTH)
    every = torch.arange(DESTINATIONS)
    combined = MaximumCombination(
        torch.cat([shares[0], self_parts[mine]]), torch.cat([every, DESTINATIONS + mine]), 2 * DESTINATIONS
    )
    arrived = torch.cat([shares[1], self_parts[theirs], shares[2]])
    combined.add(arrived, torch.cat([every, DESTINATIONS + theirs, every]))
    return combined, self_parts


def test_the_largest_share_counts_and_self_parts_come_from_their_home(shares):
    combined, self_parts = combined_maxima(shares)
    found_self, maxima = MAXIMUM.parts(combined.rows, DESTINATIONS)
    expected = shares.amax(0)
    expected[3] = 0
    assert torch.equal(maxima, expected)
    assert torch.equal(found_self, self_parts)
    assert SUM.parts(self_parts, DESTINATIONS) == (None, self_parts)


def test_the_gradient_of_a_maximum_goes_to_the_first_share_that_reaches_it(shares):
    combined, _ = combined_maxima(shares)
    gradient = torch.randn(2 * DESTINATIONS, WIDTH, dtype=torch.float64)
    local, arrived = combined.local_gradient(gradient), combined.arrived_gradient(gradient)
    found = torch.stack([local[:DESTINATIONS], arrived[:DESTINATIONS], arrived[-DESTINATIONS:]])
    expected = torch.zeros_like(shares)
    for i in range(DESTINATIONS):
        for column in range(WIDTH):
            if i != 3:
                holder = shares[:, i, column].tolist().index(shares[:, i, column].max())
                expected[holder, i, column] = gradient[i, column]
    assert torch.equal(found, expected)
    assert torch.equal(local[DESTINATIONS:], gradient[DESTINATIONS + torch.tensor([0, 2, 4])])
    assert torch.equal(arrived[DESTINATIONS : DESTINATIONS + 2], gradient[DESTINATIONS + torch.tensor([1, 3])])


def test_a_rank_without_local_shares_of_its_own_combines_what_arrives():
    combined = MaximumCombination(torch.empty(0, WIDTH), torch.empty(0, dtype=torch.int64), 2)
    combined.add(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([0, 1]))
    assert combined.rows.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert combined.local_gradient(torch.ones(2, WIDTH)).shape == (0, WIDTH)


@pytest.fixture
def scored():
    """Scores and values of 12 sources in float64; ranks hold sources 0-3, 4-8 and 9-11, and all lead to each of two."""
    torch.manual_seed(4)
    return torch.randn(12, WIDTH, dtype=torch.float64) * 40, torch.randn(12, WIDTH, dtype=torch.float64)


def softmax_share(score, value):
    """The rows of one rank's share for one destination."""
    log = score.logsumexp(0)
    return torch.stack([log, ((score - log).exp() * value).sum(0)])


def test_shares_of_a_softmax_combine_to_that_of_all_sources(scored):
    score, value = (each.requires_grad_() for each in scored)
    parts = [softmax_share(score[own], value[own]) for own in (slice(0, 4), slice(4, 9), slice(9, 12))]
    # Two destinations: the second lacks a local share, and nobody sends one of the third.
    empty = torch.stack([torch.full((WIDTH,), -torch.inf), torch.zeros(WIDTH)]).double()
    first, second = (torch.stack(each) for each in zip(parts[0], empty, strict=True))
    local = torch.cat([first, empty[:1], second, empty[1:], torch.ones(1, WIDTH).double()])
    combined = SoftmaxCombination(local.detach(), torch.tensor([0, 1, 2, 3, 4, 5, 6]), 9)
    arrived = torch.cat([parts[1][:1], parts[2][:1], parts[1][1:], parts[2][1:], torch.full((1, WIDTH), 2.0).double()])
    places = torch.tensor([0, 1, 3, 4, 8])
    combined.add(arrived.detach(), places)
    own, means = SOFTMAX.parts(combined.rows, 3)
    assert own.tolist() == [[1.0] * WIDTH, [0.0] * WIDTH, [2.0] * WIDTH]

    share = score[:9].softmax(0)
    expected = torch.stack([(share * value[:9]).sum(0), (score[9:].softmax(0) * value[9:]).sum(0)])
    torch.testing.assert_close(means[:2], expected)
    assert not means[2].any()

    # Gradients, passed on by the shares, are those of the whole.
    gradient = torch.randn(9, WIDTH, dtype=torch.float64)
    gradient[:3] = 0
    wanted = torch.autograd.grad((expected * gradient[3:5]).sum(), (score, value))
    back = torch.autograd.grad(
        [local, arrived], (score, value), [combined.local_gradient(gradient), combined.arrived_gradient(gradient)]
    )
    torch.testing.assert_close(back, wanted)


def test_shares_of_attention_combine_to_that_of_all_sources_head_by_head(scored):
    score, value = scored[0][:, :2].clone().requires_grad_(), scored[1].repeat(1, 2).requires_grad_()
    columns = torch.arange(2).repeat_interleave(WIDTH)

    def share(own):
        log = score[own].logsumexp(0)
        return torch.cat([log, ((score[own] - log).exp()[:, columns] * value[own]).sum(0)])

    # Three destinations: all ranks have sources of the first, one rank of the second, no rank of the third.
    empty = torch.cat([torch.full((2,), -torch.inf), torch.zeros(2 * WIDTH)]).double()
    local = torch.stack([share(slice(0, 4)), empty, empty])
    arrived = torch.stack([share(slice(4, 9)), share(slice(4, 9)), share(slice(9, 12))])
    combined = attention(2).combination(local.detach(), None, 3)
    combined.add(arrived.detach(), torch.tensor([0, 1, 0]))

    weights = score.softmax(0)[:, columns], score[4:9].softmax(0)[:, columns]
    expected = torch.stack([(weights[0] * value).sum(0), (weights[1] * value[4:9]).sum(0)])
    torch.testing.assert_close(combined.rows[:2, 2:], expected)
    torch.testing.assert_close(combined.rows[0, :2], score.logsumexp(0))
    assert not combined.rows[2].any()

    gradient = torch.randn(3, 2 + 2 * WIDTH, dtype=torch.float64)
    wanted = torch.autograd.grad((expected * gradient[:2, 2:]).sum(), (score, value), retain_graph=True)
    back = torch.autograd.grad(
        [local, arrived], (score, value), [combined.local_gradient(gradient), combined.arrived_gradient(gradient)]
    )
    torch.testing.assert_close(back, wanted)
