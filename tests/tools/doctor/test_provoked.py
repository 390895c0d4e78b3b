"""The doctor in earnest: real misconfigurations, in one process and under mpirun."""

import json
import re
import shlex
import subprocess
import sys

from leapmpi.cli.main import main
from tests.support.launch import PROJECT, child_environment, mpirun

DOCTOR = [sys.executable, "-m", "leapmpi.cli", "doctor", "--json"]


def found(done: subprocess.CompletedProcess[str]) -> str:
    """The problems of a doctor's JSON, a line each, the grave ones with an exclamation mark."""
    assert done.returncode in (0, 1), done.stderr
    listed = json.loads(done.stdout)["problems"]
    assert any(each["grave"] for each in listed) == (done.returncode == 1)
    assert all(each["mend"] for each in listed)
    return "\n".join(each["what"] + "!" * each["grave"] for each in listed)


def alone(shell: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The doctor in one process, after the commands in `shell`."""
    command = f"{shell}; exec {shlex.join([*DOCTOR, *arguments])}"
    environment = child_environment(env)
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60)


def test_one_process_with_all_kinds_of_trouble(tmp_path):
    shell = "ulimit -n 200; ulimit -s 512; taskset -p -c 0 $$ >/dev/null"
    trouble = {"NUMBA_CACHE_DIR": "/proc/nowhere", "OMP_NUM_THREADS": "64", "SLURM_NTASKS": "4"}
    said = found(alone(shell, "--data", str(tmp_path / "none"), "--run", "/dev/shm/run", **trouble))
    for sentence in (
        "open files are limited to 200",
        "the stack is limited to 524,288 bytes",
        "64 threads share 1 core!",
        "the folder for compiled kernels is not writable",
        "the Slurm job has 4 tasks, but this is a single process",
        f"the dataset {tmp_path / 'none'} does not exist",
        "the run folder /dev/shm/run is in the memory",
    ):
        assert sentence in said


def test_people_read_the_problems_last(small_data, tmp_path, monkeypatch, capsys):
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "50")
    monkeypatch.setenv("HOME", "/proc/nowhere")
    code = main(["doctor", "--data", str(small_data), "--run", str(tmp_path / "run")])
    output, errors = capsys.readouterr()
    assert (code, errors) == (1, "")
    lines = output.splitlines()
    assert lines[-1].startswith("1 problem, ")
    assert any(line.startswith("PROBLEM       rank 0 on ") for line in lines)
    assert any(line.startswith("note          compiled kernels are kept in a temporary folder") for line in lines)
    # A long path is folded.
    assert re.search(rf"data{small_data}:\w+,[0-9.]+GiBfree", "".join(output.split()))
    assert any(line.startswith("MPI library ") for line in lines)


def test_ranks_of_one_machine():
    # Little shared memory, as in a container, where namespaces can be made; every rank on one core.
    small_memory = "mount -t tmpfs -o size=100m tmpfs /dev/shm && "
    inside = ["unshare", "--mount", "bash", "-c"]
    rooted = subprocess.run([*inside, small_memory + "true"], capture_output=True).returncode == 0
    job = f"taskset -c 0 {PROJECT}/jobs/mpirun/local 2 {shlex.join(DOCTOR)}"
    command = [*inside, small_memory + job] if rooted else ["bash", "-c", job]
    environment = {name: value for name, value in child_environment().items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    said, facts = found(done), json.loads(done.stdout)
    assert "2 threads share 1 core!" in said
    assert "OMP_NUM_THREADS is not set (ranks 0-1)" in said
    # Where there is little, `local` has MPI share memory in the temporary folder.
    assert "MiB free for 2 ranks" not in said
    assert [each["mend"] for each in facts["problems"] if "--bind-to" in each["mend"]] == []
    assert [link["distance"] for link in facts["links"]] == [1]
    for link in facts["links"]:
        assert len(link["mbytes"]) == len(link["microseconds"]) == 2
        assert all(rate > 0 for rate in link["mbytes"])
    assert [rank["launcher"]["OMPI_COMM_WORLD_RANK"] for rank in facts["ranks"]] == ["0", "1"]


STUCK = """
import time
from leapmpi.tools.doctor import examination, links
examination.SECONDS, links.measured = 3.0, lambda world, gpu: time.sleep(60)
examination.doctor()
"""


def test_lost_messages_do_not_make_it_hang():
    job = mpirun(2, [sys.executable, "-c", STUCK], timeout=50)
    assert job.returncode == 5
    assert "rank 0 waited 3 s in measuring links: messages between ranks do not arrive" in job.stderr


def here(capsys, monkeypatch, cache, *more):
    """What the doctor says in this process, with the user's cache in folder `cache`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    code = main(["doctor", "--json", *more])
    return subprocess.CompletedProcess([], code, *capsys.readouterr())


def test_measured_rates_are_kept_and_shown(tmp_path, capsys, monkeypatch):
    measured = json.loads(here(capsys, monkeypatch, tmp_path, "--measure").stdout)["rates"]
    assert measured["source"] == f"measured, kept in {tmp_path}/leapmpi/rates.json"
    assert 0 < measured["multiply_add"] < 1e-6
    shown = json.loads(here(capsys, monkeypatch, tmp_path).stdout)["rates"]
    assert shown["source"] == f"kept in {tmp_path}/leapmpi/rates.json"
    assert (shown["key"], shown["step"]) == (measured["key"], measured["step"])
    assert shown["key"].endswith("; 1 rank on 1 node")


def test_a_damaged_file_of_rates_is_grave(tmp_path, capsys, monkeypatch):
    (tmp_path / "leapmpi").mkdir()
    (tmp_path / "leapmpi" / "rates.json").write_text("[]")
    assert "rates.json: it is [], not an object" in found(here(capsys, monkeypatch, tmp_path))
