"""Rates of machines: kept under a key in the user's cache, constants where there are none."""

import json
import os

import pytest

from leapmpi.errors import ConfigError, DataError
from leapmpi.plan.machine_rates import MachineRates, keep_rates, kept_rates, machine_key, rates_file

KEY = machine_key("Some Processor", "Some MPI 5", 4, 2)
RATES = MachineRates(multiply_add=1e-11, step=1e-3, collective=2e-5, byte=3e-10)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "leapmpi"


def test_what_is_kept_is_found_under_its_key_alone():
    assert kept_rates(KEY) is None
    keep_rates(KEY, RATES, {"measured": "2026-11-22"})
    assert kept_rates(KEY) == RATES
    assert kept_rates(machine_key("Some Processor", "Some MPI 5", 4, 1)) is None


def test_other_machines_keep_theirs():
    other = machine_key("Other", "Some MPI 5", 4, 2)
    keep_rates(KEY, RATES, {})
    keep_rates(other, MachineRates(), {})
    keep_rates(other, MachineRates(byte=1.0), {})
    assert (kept_rates(KEY), kept_rates(other)) == (RATES, MachineRates(byte=1.0))


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{" * 100_000, json.dumps({KEY: 3}), json.dumps({KEY: {"byte": 1}}), "\x00", "9" * 5000],
)
def test_a_damaged_file_is_named_with_its_cure(cache, text):
    cache.mkdir()
    rates_file().write_text(text)
    with pytest.raises(ConfigError, match=r"rates\.json: .*; remove the file, or measure again"):
        kept_rates(KEY)
    keep_rates(KEY, RATES, {})
    assert kept_rates(KEY) == RATES


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "fast", None, [1]])
def test_rates_are_positive_numbers(value):
    with pytest.raises(ConfigError, match="no rates"):
        MachineRates.from_values({**RATES.to_values(), "step": value})


def test_a_pipe_in_place_of_the_file_does_not_hang(cache):
    cache.mkdir()
    os.mkfifo(rates_file())
    assert kept_rates(KEY) is None


def test_a_place_that_cannot_be_written_is_named(cache):
    cache.write_text("")
    with pytest.raises(DataError, match=r"rates\.json: cannot be written \(File exists\)"):
        keep_rates(KEY, RATES, {})


def test_the_file_says_when_it_was_measured():
    keep_rates(KEY, RATES, {"measured": "2026-11-22", "spread": 0.04})
    assert json.loads(rates_file().read_text())[KEY] == {**RATES.to_values(), "measured": "2026-11-22", "spread": 0.04}
