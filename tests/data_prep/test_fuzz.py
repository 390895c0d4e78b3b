"""Hostile files: some hundred of those that `python -m tests.soak.fuzz_imports` reads and imports."""

import os
import signal

import pytest

from tests.soak import fuzz_imports

TRIALS = 300


@pytest.mark.timeout(300)
def test_hostile_files_become_graphs_or_sentences(tmp_path):
    counts, faults = fuzz_imports.soak(TRIALS, seed=1, base=tmp_path)
    assert not faults, faults[:5]
    assert sum(counts.values()) == TRIALS
    assert counts["refused"] > TRIALS // 2
    assert counts["read"] > TRIALS // 30


def test_a_file_that_ends_the_process_is_named_and_kept(tmp_path, monkeypatch):
    def trial(seed, sound, made, work, number):
        (work / "kept").write_text(str(number))
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return fuzz_imports.Outcome(number, "file", "none", "read")

    monkeypatch.setattr(fuzz_imports, "make", lambda folder: {})
    monkeypatch.setattr(fuzz_imports, "KEPT", tmp_path / "found")
    monkeypatch.setattr(fuzz_imports, "trial", trial)
    (tmp_path / "work").mkdir()
    counts, (fault,) = fuzz_imports.soak(6, seed=7, base=tmp_path)
    assert counts == {"read": 5, "crashed": 1}
    assert (fault.number, fault.file) == (3, str(tmp_path / "found/7-3"))
    assert (tmp_path / "found/7-3").read_text() == "3"
