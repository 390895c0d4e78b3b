"""More of Slurm on four hosts: jobs whose ranks srun starts, and sweeps as arrays. Half a minute."""

import pytest

from leapmpi.run import load_run
from tests.jobs.test_slurm import cancelled, cluster, ended, log, submit  # noqa: F401

pytestmark = pytest.mark.timeout(600)


def test_a_cancelled_job_of_srun_leaves_no_process(cluster, submit, small_data, tmp_path):  # noqa: F811
    cancelled("srun", cluster, submit, small_data, tmp_path)


def test_a_sweep_is_an_array(cluster, submit, small_data, tmp_path):  # noqa: F811
    file = tmp_path / "seeds.toml"
    file.write_text(f'data = "{small_data}"\ntrain.epochs = 1\nmodel.hidden = 8\n[sweep]\ntrain.seed = [7, 8]\n')
    (job,) = submit("sweep", file)
    for index in (0, 1):
        assert ended(cluster, f"{job}_{index}") == "COMPLETED 0", log(tmp_path)
    runs = [load_run(tmp_path / "runs" / "seeds" / name) for name in ("0-seed=7", "1-seed=8")]
    assert [run.config.train.seed for run in runs] == [7, 8]
    assert [run.summary["ranks"] for run in runs] == [1, 1]
