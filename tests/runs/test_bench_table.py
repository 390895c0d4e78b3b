"""What strategies cost: core-hours and money of ranks that compute and of ranks that prepare."""

import pytest

from leapmpi.cli.commands.bench import prices
from leapmpi.errors import ConfigError
from leapmpi.runs.text_tables import bench_table


def row(strategy, **figures):
    """A row of bench with nothing in it but `figures`."""
    empty = {"bytes": {"features": 0.0}, "phases": {"compute": 1.0}, "rows": {"local": 1, "remote": 0}}
    return {
        "strategy": strategy, "ranks": 4, "time_steps": 1, "remote": "raw", "epoch_seconds": 36.0, "warm": True,
        "ratio": 1.0, "core_seconds": 1.0, "prefetch": 0, "loss": [1.0], "accuracy": [{"val": None}], "ignored": [],
        "core_hours": 0.04, "roles": None, "busy": None, **empty, **figures,
    }  # fmt: skip


def test_roles_and_costs_have_a_table_of_their_own():
    roles = {"computing": 1, "preparing": 3, "ranks_needed": 5}
    text = bench_table([row("leap", cost=0.12), row("leap:prepare-ranks=3", roles=roles, busy=0.61, cost=0.042)])
    _, lines = text.split("an epoch")
    heading, *rows = [line.split() for line in lines.splitlines()]
    assert heading == ["compute", "prepare", "core-hours", "busy", "needed", "cost"]
    assert rows[0] == ["leap", "4", "0", "0.04000", "-", "-", "0.120000"]
    assert rows[1] == ["leap:prepare-ranks=3", "1", "3", "0.04000", "61%", "5", "0.042000"]
    assert "an epoch" not in bench_table([row("leap")])


@pytest.mark.parametrize(("text", "found"), [("3", (3.0, 3.0)), ("3,0.4", (3.0, 0.4)), ("0,1e-3", (0.0, 0.001))])
def test_prices_are_numbers(text, found):
    assert prices(text) == found


@pytest.mark.parametrize("text", ["", "3,", "1,2,3", "-1", "cheap", "inf", "nan"])
def test_other_prices_are_refused(text):
    with pytest.raises(ConfigError, match=r"--prices .*: give one price of an hour of a rank, or two"):
        prices(text)
