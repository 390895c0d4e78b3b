"""jobs/lab: hosts and the commands that run on them, the table, and errors."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import wait_for
from tests.support.launch import PROJECT, child_environment, run

LAB = PROJECT / "jobs/lab"
# Hosts of another name than those that somebody may use at the same time.
NAME = f"test{os.getpid()}"
REACH = "import socket; socket.create_connection(('{}', 9), timeout=1)"


def lab(program: str, *arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run one of the programs of jobs/lab."""
    return run([str(LAB / program), *map(str, arguments)], timeout, child_environment({"LEAPMPI_LAB": NAME}), PROJECT)


def output(*arguments: object) -> str:
    """The standard output of jobs/lab/hosts; it must succeed."""
    done = lab("hosts", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def namespaces() -> list[str]:
    """The names of network namespaces that these tests have made."""
    folder = Path("/run/netns")
    return sorted(each.name for each in folder.glob(f"leapmpi-{NAME}-*")) if folder.is_dir() else []


def lacking() -> str | None:
    """Why no hosts can be made here; None where they can."""
    if os.geteuid() != 0:
        return "hosts made of network namespaces need root"
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    if missing := [each for each in ("ip", "tc", "nsenter", "unshare") if not shutil.which(each, path=path)]:
        return f"no {', '.join(missing)}: iproute2 and util-linux have them"
    tried = subprocess.run(["unshare", "--net", "--mount", "ip", "link", "add", "type", "veth"], capture_output=True)
    return None if tried.returncode == 0 else "no network namespaces can be made here"


@pytest.fixture
def no_hosts():
    """A machine that can make hosts and has none; they are removed at the end."""
    if why := lacking():
        pytest.skip(why)
    yield
    lab("hosts", "down")
    assert namespaces() == []


def reaches(host: int, name: str) -> bool:
    """Whether a host gets an answer from another: nothing listens there, so the answer is a refusal."""
    tried = lab("hosts", "exec", host, sys.executable, "-c", REACH.format(name))
    return "Connection refused" in tried.stderr


def test_hosts_are_separate_joined_by_links_and_removed_without_a_trace(no_hosts):
    output("up", 2, "200mbit")
    assert len(namespaces()) == 3
    text = output("exec", 1, "bash", "-c", "hostname; ls /dev/shm; echo $((6 * 7)) 'a  b'; tc qdisc show dev eth0")
    name, *files, words, bucket = text.splitlines()
    assert (name, files, words) == ("lab1", ["hosts"], "42 a  b")
    assert "tbf" in bucket
    assert "rate 200Mbit" in bucket
    assert reaches(0, "lab1")
    output("cut", 1)
    assert not reaches(0, "lab1")
    output("heal", 1)
    assert reaches(0, "lab1")
    assert lab("hosts", "exec", 1, "bash", "-c", "exit 7").returncode == 7
    again = lab("hosts", "up", 3)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "2 hosts are up already" in again.stderr
    assert "there is no host 2" in lab("hosts", "exec", 2, "true").stderr
    deaf = [LAB / "hosts", "exec", "1", "bash", "-c", "trap '' TERM; echo on; sleep 60"]
    environment = child_environment({"LEAPMPI_LAB": NAME})
    with subprocess.Popen(deaf, stdout=subprocess.PIPE, env=environment) as sleeper:
        assert sleeper.stdout.readline() == b"on\n"
        output("down")
        assert sleeper.wait(10) != 0
    assert namespaces() == []


BUSY = """
import time
begin, used = time.perf_counter(), time.process_time()
while time.perf_counter() < begin + 0.6:
    pass
print(time.process_time() - used)
"""


def groups():
    """The control groups that these tests have made."""
    return [each for depth in ("*", "*/*") for each in Path("/sys/fs/cgroup").glob(f"{depth}/leapmpi-{NAME}-*")]


def files_of_groups(name):
    """The files of that name in these groups, where they have one."""
    return [group / name for group in groups() if (group / name).exists()]


def test_hosts_have_the_cores_that_they_were_given(no_hosts):
    made = lab("hosts", "up", 2, "1gbit", "--cores", "0.1,0.5")
    if made.returncode and "leave out --cores" in made.stderr:
        assert namespaces() == [], "a machine without quotas has no hosts then"
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr
    weights = {each.read_text().strip() for name in ("shares", "weight") for each in files_of_groups(f"cpu.{name}")}
    assert weights in ({"262144"}, {"10000"}), "the largest: what else runs on the machine must not take from them"
    used = [float(output("exec", host, sys.executable, "-c", BUSY)) for host in (0, 1)]
    assert used[0] < 0.2, "a tenth of a core for 0.6 seconds, and what a start may borrow"
    assert used[0] < used[1] < 0.45
    output("down")
    assert groups() == []


def test_hosts_are_removed_when_the_table_is_stopped(no_hosts, tmp_path, small_data):
    graph = tmp_path / "small.h5"
    shutil.copytree(small_data, tmp_path / "small-metis-2")
    graph.touch()  # its parts exist already
    command = [LAB / "table", "--folder", tmp_path, "--graph", graph, "--ranks", "2", "--epochs", "100000"]
    environment = child_environment({"LEAPMPI_LAB": NAME})
    with subprocess.Popen(list(map(str, command)), env=environment, stderr=subprocess.DEVNULL) as table:
        wait_for(lambda: len(namespaces()) == 3 or table.poll() is not None, 30, "hosts")
        table.terminate()
        assert table.wait(30) == 143
    assert namespaces() == []


def test_a_table_is_measured_on_two_hosts(no_hosts, tmp_path):
    if shutil.which("mpirun", path=child_environment()["PATH"]) is None:
        pytest.skip("no mpirun: jobs/environment installs one")
    size = ("--ranks", 2, "--vertices", 400, "--edges", 1500, "--epochs", 2, "--batch-size", 128)
    arguments = ("--folder", tmp_path, "--graph", "A", "--rate", "1gbit", *size)
    job = lab("table", *arguments, "--strategies", "leap,pull:remote=raw", timeout=100)
    assert job.returncode == 0, job.stderr
    _, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in job.stdout.splitlines()]
    assert [line[2] for line in lines] == ["`leap`", "`pull:remote=raw`"]
    assert lines[0][4] == "1.00"
    assert lines[0][7] == lines[1][7] != ""
    assert float(lines[0][5]) > 0
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert [row["ranks"] for row in record["rows"]] == [2, 2]
    assert namespaces() == []


@pytest.mark.parametrize(
    ("program", "arguments", "sentence"),
    [
        ("hosts", ["exec", 0, "true"], "no hosts are up"),
        ("hosts", ["mpirun", 2, "true"], "no hosts are up"),
        ("hosts", ["bytes"], "no hosts are up"),
        ("hosts", ["up", 2, "fast"], "give a rate such as 1gbit"),
        ("hosts", ["up", 0], "must be 1 to 200, not 0"),
        ("hosts", ["up", 3, "1gbit", "--cores", "1,0.25"], "give one number for all hosts, or 3, one each; not 2"),
        ("hosts", ["up", 3, "1gbit", "--cores", "0"], "give numbers of cores of 0.05 or more"),
    ],
)
def test_errors_are_one_sentence(no_hosts, program, arguments, sentence):
    job = lab(program, *arguments)
    assert (job.returncode, job.stdout, job.stderr.count("\n")) == (2, "", 1)
    assert sentence in job.stderr


def test_without_root_and_without_programs_a_sentence_says_so(tmp_path):
    code = f"import os, runpy; os.geteuid = lambda: {{}}; runpy.run_path({str(LAB / 'hosts')!r}, run_name='__main__')"
    environment = child_environment({"PYTHONPATH": str(LAB)})
    for user, sentence in ((1000, "need root"), (0, "no ip, tc, nsenter, unshare on PATH")):
        # The folders that the script adds to PATH hold the programs, so their search is cut off too.
        given = code.format(user)
        if user == 0:
            given = "import shutil; shutil.which = lambda name: None; " + given
        job = run([sys.executable, "-c", given, "down"], 20, environment, tmp_path)
        assert job.returncode == 2
        assert sentence in job.stderr
        assert job.stderr.count("\n") == 1


def test_an_unknown_graph_is_refused_before_anything_is_made(tmp_path):
    job = lab("table", "--folder", tmp_path / "new", "--graph", "C")
    assert job.returncode == 2
    assert job.stderr == "table: error: --graph C: give A, B, or the path of a graph file\n"
    assert not (tmp_path / "new").exists()


def test_forecasts_of_a_graph_that_is_missing_make_no_hosts(tmp_path):
    job = lab("forecasts", "--folder", tmp_path / "new", "--data", tmp_path, "--graph", "nothing")
    assert job.returncode == 1
    assert f"error: {tmp_path}/nothing does not exist" in job.stderr
    assert job.stderr.endswith("ended with exit code 3; see above\n")
    assert namespaces() == []


@pytest.mark.parametrize("arguments", [["distdgl/run", 2, "parts"], ["distdgl/partition", "graph.h5", "parts", 2]])
def test_distdgl_names_the_environment_that_it_needs(arguments):
    if importlib.util.find_spec("dgl"):
        pytest.skip("this environment has DGL")
    job = lab(*arguments)
    assert job.returncode == 1
    assert f"error: no dgl in {sys.prefix}; " in job.stderr
    assert job.stderr.count("\n") == 1
