"""jobs/configs/leapgnn: every sweep is valid, says how to run it, and varies the setting of its name."""

import pytest

from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import read_sweep
from tests.support.launch import PROJECT

FOLDER = PROJECT / "jobs/configs/leapgnn"
FILES = sorted(FOLDER.glob("*.toml"))
SWEPT = {
    "ablation": "strategy.time_steps",
    "batch-size": "train.batch_size",
    "fan-out": "sampling.fanout",
    "feature-dim": "data",
    "full-batch": "strategy.name",
    "hidden": "model.hidden",
    "ranks": "strategy.name",
}


def test_there_is_a_file_for_each_experiment():
    assert [path.stem for path in FILES] == sorted(SWEPT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_runs_are_valid_and_differ_in_the_setting_of_the_name(path, tmp_path):
    sweep = read_sweep(path)
    shared = Config().assigned(sweep.base)
    configs = [sweep.config(index, shared, tmp_path) for index in range(len(sweep.points))]
    assert len({config.run.folder for config in configs}) == len(configs)
    assert (configs[0].strategy.name, configs[0].strategy.remote) == ("pull", "raw")
    assert len({str(point.get(SWEPT[path.stem])) for point in sweep.points}) > 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_head_says_how_to_run_it_and_what_to_expect(path):
    head = path.read_text().partition("\n\n")[0].partition("\nmodel.")[0]
    assert f"leapmpi sweep jobs/configs/leapgnn/{path.name}" in head
    assert "# Expected: " in head
