"""jobs/bench/wire: every transfer is measured, and invalid numbers are refused in one sentence by one rank."""

import json

import pytest

from tests.support.launch import PROJECT, mpirun

WIRE = PROJECT / "jobs/bench/wire"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--repeats 0", "argument --repeats: '0' is not a whole number from 1 on"),
        ("--rows -5", "argument --rows: '-5' is not a whole number from 1 on"),
        ("--width 0", "argument --width: '0' is not a whole number from 1 on"),
        ("--link-mbytes -3", "argument --link-mbytes: '-3' is not a number from 0 on"),
        ("--repeat 3", "unknown flag --repeat; did you mean '--repeats'?"),
    ],
)
def test_invalid_numbers_are_refused(words, message):
    job = mpirun(2, [WIRE, *words.split()])
    assert job.returncode == 2
    assert job.stdout == ""
    assert job.stderr.splitlines()[0].startswith(f"wire: error: {message}")
    assert job.stderr.count("wire: error") == 1
    assert "Traceback" not in job.stderr


@pytest.mark.parametrize("sizes", [("--rows", 8, "--width", 3), ("--rows", 1, "--width", 1)])
def test_transfers_are_measured_on_two_ranks(sizes):
    job = mpirun(2, [WIRE, *sizes, "--repeats", 1, "--link-mbytes", 100, "--json"])
    assert job.returncode == 0, job.stderr
    rows = json.loads(job.stdout)
    assert [row["transfer"] for row in rows] == ["exchange", "ring hop", "reduce", "reduce 44 kB", "broadcast"]
    assert all(row["seconds"] > 0 and row["share"] == pytest.approx(row["MB/s"] / 100) for row in rows)
    assert rows[0]["bytes"] == sizes[1] * sizes[3] * 4
