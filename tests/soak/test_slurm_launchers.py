"""More of Slurm on four hosts: jobs preempted, jobs whose ranks srun starts, sweeps as arrays. A minute."""

import pytest

from leapmpi.runs.run import load_run
from tests.jobs.test_slurm import cancelled, cluster, ended, log, started, submit  # noqa: F401

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


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_preempted_job_saves_gives_way_and_goes_on(launcher, cluster, submit, small_data, tmp_path):  # noqa: F811
    settings = ["--epochs", 60, "--hidden", 8, "--batch-size", 16, "--eval-every", 30, "--verify", "none"]
    # No checkpoint but the first one and that of the signal.
    settings += ["--checkpoint-every", "100m", "--run", "run"]
    (job,) = submit("--nodes", 4, "--launcher", launcher, "train", small_data, *settings)
    started(tmp_path / "run")
    urgent = cluster.said("sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", "--wrap", "sleep 2")
    assert ended(cluster, urgent, 100) == "COMPLETED 0"
    assert ended(cluster, job, 200) == "COMPLETED 1", log(tmp_path)
    (resumed,) = (each for each in load_run(tmp_path / "run").metrics() if each["event"] == "resumed")
    assert (resumed["epoch"], resumed["iteration"]) != (0, 0), log(tmp_path)
    assert resumed["after"]["status"] == "interrupted"
    assert "SIGTERM" in resumed["after"]["why"] or "SIGUSR2" in resumed["after"]["why"]


def test_a_cancelled_job_saves_within_the_time_that_slurm_gives(cluster, submit, small_data, tmp_path):  # noqa: F811
    (job,) = submit("--nodes", 2, "train", small_data, "--epochs", 10**6, "--checkpoint-every", "100m", "--run", "run")
    started(tmp_path / "run")
    cluster.said("scancel", job)
    assert ended(cluster, job, 60) == "CANCELLED 0"
    assert load_run(tmp_path / "run").failure["status"] == "interrupted", log(tmp_path)
