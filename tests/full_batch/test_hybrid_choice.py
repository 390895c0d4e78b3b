"""The choice of hybrid on virtual ranks: by rates, within the limit, the same each time."""

import numpy as np
import pytest

from leapmpi.config.schema import Config
from leapmpi.dataset.topology import load_topology
from leapmpi.forecast.simulator import Forecaster
from leapmpi.full_batch.layer_account import account_of, counts_of
from leapmpi.full_batch.layer_by_layer import graph_of
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.session.setup import open_for_training, with_batch_size
from leapmpi.strategies.hybrid import Hybrid

RANKS = 3


def chosen(data, machine, limit="", **settings):
    """The engine and mini-batch of each rank, and the counts by layer."""
    given = {
        "data": str(data), "strategy.name": "hybrid", "strategy.memory_limit": limit, "train.batch_size": "full",
        "sampling.fanout": "all,all,all", "model.hidden": 64, "model.input_dropout": 0.1,
    }  # fmt: skip
    dataset = open_for_training(Config.from_values(given))
    config = with_batch_size(Config.from_values(given | settings), dataset)
    forecaster = Forecaster(dataset, load_topology(dataset))
    forecaster.machine = machine
    job = forecaster.job(config, RANKS)
    engines, minibatches = job.engines, job.draw(job.on_first(dataset.splits.train), 0)
    offsets = engines[0].ctx.rank_offsets
    counts = [counts_of(graph_of(each), offsets, rank) for rank, each in enumerate(minibatches)]
    return engines, minibatches, account_of(np.stack(counts))


def test_where_bytes_cost_much_all_is_computed_again_and_kept(small_data):
    _, _, account = chosen(small_data, MachineRates(byte=1.0))
    assert all(layer["rows"] == layer["by_kind"] == 0 and layer["cached"] > 0 for layer in account)


def test_where_computing_costs_much_hidden_rows_are_sent(small_data):
    _, _, account = chosen(small_data, MachineRates(multiply_add=1.0))
    assert account[0]["cached"] > 0
    assert account[0]["rows"] == 0
    assert all(layer["cached"] == 0 and layer["rows"] + layer["by_kind"] > 0 for layer in account[1:])


def test_where_an_exchange_costs_more_than_computing_again_there_is_none(small_data):
    # A single row would be sent.
    _, _, account = chosen(small_data, MachineRates(multiply_add=1e-3, byte=1e-3, collective=1e9))
    assert all(layer["rows"] == layer["by_kind"] == 0 and layer["cached"] > 0 for layer in account)


def test_sums_are_sent_where_they_are_fewer_numbers(small_data):
    _, _, account = chosen(small_data, MachineRates(multiply_add=1e-3, byte=1e-3, collective=1e-9))
    # The last layer gives few classes for many hidden columns.
    assert account[-1]["kind"] == "partial"
    assert account[-1]["by_kind"] > 0
    _, _, account = chosen(small_data, MachineRates(multiply_add=1e-3, byte=1e-3), **{"model.name": "gat"})
    assert account[-1]["kind"] != "partial"


def test_rows_are_sent_among_sums_where_an_exchange_costs_less_than_they_save(small_data):
    def mixed(collective):
        machine = MachineRates(multiply_add=1e-3, byte=1e-3, collective=collective)
        _, minibatches, _ = chosen(small_data, machine)
        last = [graph_of(each).plans[-1] for each in minibatches]
        assert all(plan.kind == "partial" for plan in last)
        return any(plan.by_kind.mixed is not None for plan in last)

    assert mixed(1e-9)
    assert not mixed(1.0)


def test_the_same_rates_give_the_same_graph(small_data):
    once, again = (chosen(small_data, MachineRates(byte=1e-8))[1] for _ in range(2))
    for one, other in zip(once, again, strict=True):
        for plan, same in zip(graph_of(one).plans, graph_of(other).plans, strict=True):
            assert plan.kind == same.kind
            assert np.array_equal(plan.block.src, same.block.src)


def most_needed(found):
    engines, minibatches, _ = found
    return max(engine.preparation.needs(each) for engine, each in zip(engines, minibatches, strict=True))


def test_the_limit_holds_and_more_room_means_fewer_rows_sent(small_data):
    wide = {"model.hidden": 512, "model.name": "gcn"}
    least = most_needed(chosen(small_data, MachineRates(multiply_add=1.0), **wide))
    most = most_needed(chosen(small_data, MachineRates(byte=1.0), **wide))
    assert least < most
    sent = []
    for limit in (least + (most - least) // 4, (least + most) // 2, 2 * most):
        found = chosen(small_data, MachineRates(byte=1.0), str(limit), **wide)
        assert most_needed(found) <= limit
        sent.append(sum(layer["rows"] + layer["by_kind"] for layer in found[-1]))
    assert sent == sorted(sent, reverse=True)
    assert sent[0] > sent[-1] == 0


def test_a_restart_splits_by_the_rates_of_the_first_start(small_data):
    engines, _, _ = chosen(small_data, MachineRates(byte=1.0))
    placement = engines[0].placement
    assert isinstance(placement, Hybrid)
    placement.machine = MachineRates(byte=0.5)
    state = placement.state()
    other = chosen(small_data, MachineRates())[0][0].placement
    other.restore(state)
    other.settle(engines[0].tuning_log)
    assert other.machine == MachineRates(byte=0.5)
    assert other.chooser().machine.byte == pytest.approx(0.5)
