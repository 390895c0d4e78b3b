"""Traffic, by hand on three ranks."""

import numpy as np

from leapmpi.plan.traffic_model import Traffic


def test_a_request_by_hand():
    traffic = Traffic(3)
    traffic.add_request(1, np.array([2, 0, 5]), 4, "features", 100)
    assert traffic.sent["ids"].tolist() == [[0, 0, 0], [8, 0, 20], [0, 0, 0]]
    assert traffic.sent["features"].tolist() == [[0, 200, 0], [0, 0, 0], [0, 500, 0]]
    assert traffic.sent["control"].tolist() == [[0, 0, 0], [8, 0, 8], [0, 0, 0]]


def test_gradients_of_answers_go_back_the_way_they_came():
    traffic = Traffic(2)
    traffic.add_request(0, np.array([0, 3]), 4, "activations", 10, 10)
    assert traffic.sent["activations"].tolist() == [[0, 30], [30, 0]]


def test_a_reduction_by_hand():
    traffic = Traffic(3)
    for rank in range(3):
        traffic.add_reduction(rank, 7, 4)
    # Slices of 2, 2 and 3 numbers: each is sent to its adder by two ranks, and its sum to two ranks.
    assert traffic.sent["gradients"].tolist() == [[0, 16, 20], [16, 0, 20], [20, 20, 0]]


def test_hops_and_broadcasts():
    traffic = Traffic(3)
    traffic.add_hop(0, 2, {"parameters": 5})
    traffic.add_hop(1, 3, {"parameters": 7})
    traffic.add_broadcast("schedule", 11)
    assert traffic.sent["parameters"].tolist() == [[0, 5, 0], [0, 0, 0], [0, 0, 0]]
    assert traffic.sent["schedule"].tolist() == [[0, 11, 11], [0, 0, 0], [0, 0, 0]]
    assert traffic.bytes_by_kind()["parameters"] == 5
