"""Batch scripts: the files of jobs/slurm are those that submit writes and valid bash, and bad input is refused."""

import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.tools.batch.site import Site, read_site
from tests.support.cluster import wait_for
from tests.support.graphs import random_graph
from tests.support.launch import PROJECT, child_environment

SLURM = PROJECT / "jobs/slurm"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rendered")
    command = [sys.executable, SLURM / "render", folder]
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_files_are_those_that_submit_writes(rendered):
    expected = {path.name: path.read_text() for path in rendered.iterdir()}
    assert expected == {path.name: path.read_text() for path in SLURM.glob("*.sbatch")}, "run jobs/slurm/render"


@pytest.mark.parametrize("script", sorted(SLURM.glob("*.sbatch")), ids=lambda path: path.stem)
def test_every_file_is_valid(script):
    text = script.read_text()
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True, timeout=20).stderr == ""
    head = text[: text.index("\n\n")]
    assert all(line.startswith("#") for line in head.splitlines())
    assert re.findall("^#SBATCH", text, re.MULTILINE) == re.findall("^#SBATCH", head, re.MULTILINE)
    assert "--gpus-per-task" not in re.sub("#.*", "", text.replace("#SBATCH", ""))


@pytest.mark.parametrize("name", [path.stem for path in sorted((SLURM / "sites").glob("*.toml"))])
def test_every_profile_has_a_file_with_its_settings(name):
    site, text = read_site(SLURM / "sites" / f"{name}.toml"), (SLURM / f"{name}.sbatch").read_text()
    assert f"--nodes={site.nodes} --ntasks={site.ranks} --ntasks-per-node={site.ranks_per_node} " in text
    assert (f"--gpus-per-node={site.gpus_per_node}" in text) == ("--device cuda" in text) == bool(site.gpus_per_node)
    assert ("srun --mpi=none" in text) == ("cp -rL" in text) == bool(site.stage)
    assert (f"srun --mpi={site.srun_mpi} --kill-on-bad-exit=1" in text) == (site.launcher == "srun")
    assert f"#SBATCH --signal=B:USR2@{site.signal_before}\n" in text


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('nodes = 2\nmodules = ["mpi/5"]\nsbatch = ["--constraint=ib"]\ncommands = ["export A=\'b c\'"]\n')
    return path


def script_of(capsys, *arguments):
    assert main(["submit", *map(str, arguments)]) == 0
    output, errors = capsys.readouterr()
    assert "not submitted" in errors
    return output


def test_the_script_has_the_settings_of_profile_flags_and_command(site, small_data, capsys):
    text = script_of(
        capsys, "--site", site, "--ranks-per-node", 2, "--account", "me", "--no-requeue", "--stage", "/local disk",
        "--name", "a-b", "train", small_data, "--set", "train.lr=0.1", "--run", small_data,
    )  # fmt: skip
    assert text.startswith("#!/bin/bash -l\n# Made by: leapmpi submit ")
    for line in (
        "#SBATCH --job-name=a-b", "#SBATCH --account=me", "#SBATCH --constraint=ib", "#SBATCH --no-requeue",
        "module load mpi/5", "export A='b c'", "copies='/local disk'/leapmpi-$USER",
        f'    leapmpi train "$data" --set train.lr=0.1 --run {small_data} &',
    ):  # fmt: skip
        assert line in text.splitlines()
    assert "scontrol" not in text


def test_a_run_folder_is_named_so_that_a_restart_finds_it(site, small_data, capsys):
    text = script_of(capsys, "--site", site, "train", small_data)
    assert f'leapmpi train {small_data} --run "runs/$SLURM_JOB_NAME-$SLURM_JOB_ID" &' in text


def test_a_sweep_becomes_an_array_and_stages_its_dataset(site, small_data, tmp_path, capsys):
    file = tmp_path / "sweep.toml"
    file.write_text(f'data = "{small_data}"\n[sweep]\ntrain.seed = [1, 2, 3]\n')
    text = script_of(capsys, "--site", site, "--stage", "/tmp", "--gpus-per-node", 1, "sweep", file)
    assert "#SBATCH --array=0-2%4" in text
    assert "--output=%x-%A_%a.out" in text
    assert f'leapmpi sweep {file} --index "$SLURM_ARRAY_TASK_ID" --device cuda --set data="$data" &' in text


HANDLES = "trap 'touch {0}/signalled; exit 75' USR2; while :; do sleep 0.1; done"


@pytest.mark.parametrize(("signal_before", "ranks"), [
    (10, "trap 'touch {0}/signalled' USR2"),
    (1000, f'OMPI_COMM_WORLD_RANK=0 bash -c "{HANDLES}" &'),
], ids=["with unknown ranks", "after its ranks"])  # fmt: skip
def test_a_launcher_that_hangs_after_the_signal_is_killed_and_the_job_queued_again(
    signal_before, ranks, small_data, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("leapmpi.tools.batch.slurm._HANGS", 2)
    (tmp_path / "site.toml").write_text(f"signal_before = {signal_before}")
    script = tmp_path / "job.sbatch"
    script.write_text(script_of(capsys, "--site", tmp_path / "site.toml", "train", small_data))
    programs = {
        "mpirun": f"{ranks.format(tmp_path)}\ntouch {tmp_path}/up\nwhile :; do sleep 0.1; done",
        "squeue": "echo RUNNING",
        "scontrol": f"echo $* > {tmp_path}/requeued",
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "a", "SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "1"}
    env = {**child_environment(slurm), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    job = subprocess.Popen(["bash", script], env=env, stdout=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "up").exists(), 20, "the launcher")
    job.send_signal(signal.SIGUSR2)
    assert job.wait(30) == 75
    assert (tmp_path / "signalled").exists()
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"


def test_tasks_that_prepare_become_arrays(site, capsys):
    words = ["--site", site, "--prepare", "import e.csv g.h5", "--prepare", "partition g.h5 out --parts 2"]
    text = script_of(capsys, *words, "--prepare-tasks", "8", "train", "out")
    scripts = text.split("#!/bin/bash")[1:]
    shares = ["--share" in each for each in scripts]
    assert shares == [True, True, False, True, True, False, False]
    for each in scripts[:2]:
        assert "#SBATCH --array=0-7%" in each
        assert 'leapmpi-prep import e.csv g.h5 --share "$SLURM_ARRAY_TASK_ID/8"' in each
    assert "--array" not in scripts[2]
    assert 'leapmpi-prep partition g.h5 out --parts 2 --share "$SLURM_ARRAY_TASK_ID/8"' in scripts[3]


def test_data_preparation_becomes_a_job_of_its_own(site, capsys):
    text = script_of(capsys, "--site", site, "--prepare", "partition 'my graph.h5' out --parts 2", "train", "out")
    first, second = text.split("#!/bin/bash -l\n")[1:]
    assert "--ntasks=1 " in first
    assert first.endswith("leapmpi-prep partition 'my graph.h5' out --parts 2\n\n")
    assert "leapmpi train out" in second


@pytest.mark.parametrize(
    ("profile", "arguments", "code", "message"),
    [
        ("nodes = 0", "train DATA", 2, "nodes: 0 is too small"),
        ("nodez = 1", "train DATA", 2, "unknown key 'nodez'; did you mean 'nodes'?"),
        ("modules = 'a'", "train DATA", 2, "modules: give a list of strings"),
        ("commands = ['a\\nb', \"c\\nd\"]", "train DATA", 2, "commands: line breaks are not allowed"),
        ("partition = 'a b'", "train DATA", 2, "partition: 'a b' is not a value for sbatch"),
        ("launcher = 'ssh'", "train DATA", 2, "launcher: unknown value 'ssh'"),
        ("time = 'soon'", "train DATA", 2, "site.toml: time: 'soon' is not a time limit such as 01:30:00"),
        ("", "--time 1- train DATA", 2, "--time: '1-' is not a time limit"),
        ("", "--time 5 train DATA", 2, "--time: a job of time 5 would be stopped at once, as a checkpoint is"),
        ("", "--signal-before 3600 train DATA", 2, "--signal-before: a job of time 01:00:00 would be stopped at once"),
        ("gpus_per_node = 1\nranks_per_node = 2", "train DATA", 2, "2 ranks on a node of 1 GPU would share a GPU"),
        ("", "--nodes x train DATA", 2, "--nodes: 'x' is not a whole number"),
        ("", "--nodez 2 train DATA", 2, "did you mean '--nodes'?"),
        ("", "--name a/b train DATA", 2, "give a name without"),
        ("", "train DATA --lrr 3", 2, "unknown flag --lrr; did you mean '--lr'?"),
        ("", "train DATA --lr -3", 2, "train.lr: -3.0 is too small"),
        ("", "train", 2, "no dataset given"),
        ("", "train nowhere", 3, "nowhere"),
        ("nodes = 2", "train DATA", 3, "2 ranks were started, but the dataset has 1 part"),
        ("", "trian DATA", 2, "a job cannot run 'trian'; did you mean 'train'?"),
        ("", "", 2, "a job cannot run ''"),
        ("", "--prepare import'x train DATA", 2, "no closing quotation; close the quotation marks"),
        ("", "--prepare leapmpi-prep train DATA", 2, "give what follows leapmpi-prep"),
        ("", "sweep nowhere.toml", 2, "nowhere.toml: no such config file"),
        ("", "sweep SWEEP --index 0", 2, "omit --index"),
        ("", "--yes train DATA", 5, "no sbatch on PATH"),
    ],
)
def test_a_job_that_cannot_run_is_refused_before_it_queues(
    profile, arguments, code, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    places = {"DATA": tmp_path / "data", "SWEEP": tmp_path / "sweep.toml"}
    write_dataset(places["DATA"], random_graph(), np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    places["SWEEP"].write_text(f'data = "{places["DATA"]}"\n[sweep]\ntrain.seed = [1]\n')
    (tmp_path / "site.toml").write_text(profile)
    words = [str(places.get(word, word)) for word in arguments.split()]
    assert main(["submit", "--site", str(tmp_path / "site.toml"), *words]) == code
    errors = capsys.readouterr().err
    assert re.fullmatch(r"leapmpi: error: .+\n", errors), errors
    assert message in errors


@pytest.mark.parametrize("time", ["0", "UNLIMITED", "1-0", "6"])
def test_a_time_of_slurm_that_leaves_time_to_train_is_taken(time, site, small_data, capsys):
    assert f"#SBATCH --time={time}\n" in script_of(capsys, "--site", site, "--time", time, "train", small_data)


def test_without_a_profile_a_job_takes_the_active_environment(small_data, capsys, monkeypatch):
    monkeypatch.setattr("sys.prefix", "/home/me/my env")
    text = script_of(capsys, "--nodes", 2, "train", small_data)
    assert "source '/home/me/my env/bin/activate'" in text.splitlines()
    assert "#SBATCH --nodes=2 --ntasks=2 " in text
    assert "bin/activate" not in script_of(capsys, "--venv", "", "train", small_data)
    monkeypatch.setattr("sys.prefix", sys.base_prefix)
    assert read_site(None) == Site()
    assert main(["submit", "--account", "a b", "train", str(small_data)]) == 2
    assert capsys.readouterr().err == "leapmpi: error: --account: 'a b' is not a value for sbatch\n"


def test_an_empty_profile_is_the_default(tmp_path):
    (tmp_path / "site.toml").write_text("")
    assert read_site(tmp_path / "site.toml") == Site()
