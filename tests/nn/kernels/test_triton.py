"""Kernels in Triton, run by its interpreter on the CPU: what torch gives, and torch where they cannot serve."""

import json
import logging
import os
import subprocess
import sys

import pytest
import torch

from leapmpi.nn.kernels import triton_choice
from leapmpi.runs.run import load_run
from tests.support.launch import PROJECT
from tests.support.triton_launches import WHY_SKIPPED

CPU = torch.device("cpu")
OPERATIONS = {
    "node-wise": 10, "with-replacement": 12, "labor-0": 10, "weighted": 18, "random-walk": 10, "temporal": 14,
    "cluster-gcn": 12, "graph-saint": 12, "fast-gcn": 22, "ladies": 36, "labor-i": 43,
}  # fmt: skip
"""Most operations of the draws of an iteration with two hops, by sampler."""


@pytest.fixture
def nothing_proven(monkeypatch):
    monkeypatch.setattr(triton_choice, "_proven", {})


@pytest.mark.parametrize("trial", [lambda: False, lambda: 1 / 0])
def test_a_kernel_that_differs_or_does_not_run_is_left_aside(trial, nothing_proven, monkeypatch, caplog):
    monkeypatch.setattr(triton_choice, "offered", lambda device: True)
    monkeypatch.setattr(logging.getLogger("leapmpi"), "propagate", True)
    assert not triton_choice.serves("sums", CPU, trial)
    assert not triton_choice.serves("sums", CPU, lambda: True), "it is tried once"
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("warning: Triton's sums differ from torch's or do not run")
    assert triton_choice.serves("draws", CPU, lambda: True)


def test_it_can_be_turned_off_and_serves_no_host(monkeypatch):
    monkeypatch.setenv("LEAPMPI_TRITON", "off")
    assert not triton_choice.offered(torch.device("cuda"))
    monkeypatch.delenv("LEAPMPI_TRITON")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not triton_choice.offered(CPU)


def trained(program, data, run):
    """Train by `program` on a stand-in for a GPU; the digest of the weights, and what it printed."""
    command = [sys.executable, "-m", program, "train", str(data), "--run", str(run), "--device", "stand-in"]
    options = ["--epochs", "1", "--batch-size", "60", "--hidden", "8", "--fanout", "4,3"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.run([*command, *options], capture_output=True, text=True, cwd=PROJECT, env=env)
    assert job.returncode == 0, job.stdout + job.stderr
    return load_run(run).summary["parameters_digest"], job.stdout


@pytest.fixture(scope="module")
def by_torch(small_data, tmp_path_factory):
    """The digest of a program's training, which starts with less of torch than tests have loaded."""
    return trained("leapmpi", small_data, tmp_path_factory.mktemp("by-torch") / "run")[0]


def test_the_program_trains_on_a_stand_in(by_torch):
    assert by_torch


def test_training_with_them_takes_the_same_steps(small_data, by_torch, tmp_path):
    pytest.importorskip("triton", reason=WHY_SKIPPED)
    digest, printed = trained("tests.support.triton_trial", small_data, tmp_path / "run")
    served = json.loads(printed.splitlines()[-1])
    assert min(served["node_wise"], served["weighted_sum"]) > 10
    assert digest == by_torch, "both add up in the order of edges"


@pytest.mark.timeout(600)  # the interpreter is slow on a loaded machine
def test_draws_by_them_are_those_of_the_cpu():
    pytest.importorskip("triton", reason=WHY_SKIPPED)
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.triton_draws"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    job = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, env=env)
    assert job.returncode == 0, job.stdout + job.stderr
    found = json.loads(job.stdout)
    assert all(found["served"].values())
    assert len(found["served"]) == 8
    for kind, phases in found["operations"].items():
        # A frontier of the whole batch is numbered too.
        assert phases["numbering"] <= (19 if kind.startswith(("ladies", "labor-i")) else 10), kind
        assert phases["draws"] <= OPERATIONS[kind.partition(",")[0]], kind
