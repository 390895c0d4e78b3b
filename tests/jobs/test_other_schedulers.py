"""Jobs of PBS, Flux and Kubernetes: valid bash that stops its ranks in time, a manifest of the MPI operator's form.

None of these schedulers is at hand: what is tested are texts, and the scripts' own behaviour with a launcher in place.
"""

import json
import os
import re
import subprocess

import pytest

from leapmpi.cli.main import main
from leapmpi.errors import ConfigError
from leapmpi.tools.batch.shell import clock
from leapmpi.tools.batch.site import seconds_of
from tests.support.launch import PROJECT

SCHEMA = json.loads((PROJECT / "tests/jobs/mpijob_v2beta1.json").read_text())
SIZE = ["--nodes", "2", "--ranks-per-node", "2", "--cores-per-rank", "4", "--time", "02:30:00"]
TRAIN = ["--prepare", "partition g.h5 data", "train", "data"]
KUBERNETES = ["--scheduler", "kubernetes", "--image", "i"]


@pytest.fixture
def submitted(capsys):
    """The text that `submit` prints for some flags; its exit code must be `code`."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main(["submit", *map(str, words)]) == code
        printed = capsys.readouterr()
        return printed.out if code == 0 else printed.err

    return run


@pytest.mark.parametrize(
    ("scheduler", "lines"),
    [
        ("pbs", ["#PBS -l select=2:ncpus=8:mpiprocs=2:ompthreads=4:ngpus=2:mem=64gb", "#PBS -l walltime=02:30:00"]),
        (
            "pbs",
            ["#PBS -N leapmpi", "#PBS -q gpu", "#PBS -A me", 'mpirun --hostfile "$PBS_NODEFILE" -n 4 --bind-to none'],
        ),
        ("flux", ["# flux: -N 2 -n 4 -c 4 -g 1 --exclusive", "# flux: -t 9000s", "# flux: --queue=gpu", "--bank=me"]),
    ],
)
def test_scripts_request_what_the_profile_says(submitted, tmp_path, scheduler, lines):
    flags = ["--gpus-per-node", "2", "--partition", "gpu", "--account", "me"]
    flags += ["--memory-per-node", "64G"] if scheduler != "flux" else []
    text = submitted("--scheduler", scheduler, *SIZE, *flags, *TRAIN)
    for line in lines:
        assert line in text
    assert "leapmpi-prep partition g.h5 data" in text
    assert re.search(r'train data --run "runs/[^"]+" --device cuda &', text)
    for number, script in enumerate(re.split("^(?=#!/bin/bash)", text, flags=re.MULTILINE)[1:]):
        (tmp_path / str(number)).write_text(script)
        assert subprocess.run(["bash", "-n", tmp_path / str(number)], capture_output=True, timeout=20).stderr == b""


@pytest.mark.parametrize("scheduler", ["pbs", "flux"])
def test_ranks_are_stopped_before_the_time_is_up(submitted, tmp_path, scheduler):
    (tmp_path / "site.toml").write_text(f'scheduler = "{scheduler}"\ntime = "1"\nsignal_before = 59\n')
    text = submitted("--site", tmp_path / "site.toml", *TRAIN)
    script = text[text.rindex("#!/bin/bash") :]
    kill = "kill -USR2 $(cat pid)"
    programs = {"mpirun": 'trap "exit 75" USR2; while :; do sleep 0.05; done'}
    programs["flux"] = f"case $1 in getattr) echo f1;; job) {kill};; *) echo $$ > pid; {programs['mpirun']};; esac"
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PBS_O_WORKDIR": str(tmp_path),
        "PBS_NODEFILE": "/dev/null",
    }
    environment |= {"PBS_JOBNAME": "a", "PBS_JOBID": "1"}
    done = subprocess.run(["bash"], input=script, env=environment, cwd=tmp_path, text=True, timeout=60)
    assert done.returncode == 75


def faults(value, schema, place="job"):
    """List what of `value` is not as the schema says."""
    schema = SCHEMA[schema["ref"]] if "ref" in schema else schema
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{place}: {value}"]
    if schema.get("quantity"):
        return [] if re.fullmatch(r"\d+([KMGT]i?)?", str(value)) else [f"{place}: {value}"]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if type(value) is not kinds[schema["type"]] or value == [] or ("minimum" in schema and value < schema["minimum"]):
        return [f"{place}: {value!r}"]
    if isinstance(value, list):
        return [fault for each in value for fault in faults(each, schema["items"], place)]
    found = (
        [f"{place}: no {name}" for name in schema.get("required", ()) if name not in value]
        if isinstance(value, dict)
        else []
    )
    for name, each in value.items() if isinstance(value, dict) else ():
        inner = schema.get("each") or schema["properties"].get(name)
        found += [f"{place}.{name} is unknown"] if inner is None else faults(each, inner, f"{place}.{name}")
    return found


def test_a_manifest_has_the_form_of_an_mpijob(submitted):
    flags = [
        "--image",
        "registry/leapmpi:1",
        "--volume-claim",
        "graphs",
        "--gpus-per-node",
        "2",
        "--memory-per-node",
        "64G",
    ]
    job = json.loads(submitted("--scheduler", "kubernetes", *SIZE, *flags, "train", "papers", "--epochs", "3"))
    assert faults(job, SCHEMA) == []
    assert faults({**job, "spec": {**job["spec"], "slotPerWorker": 1}}, SCHEMA) == ["job.spec.slotPerWorker is unknown"]
    replicas = job["spec"]["mpiReplicaSpecs"]
    (launcher,), (worker,) = (replicas[name]["template"]["spec"]["containers"] for name in ("Launcher", "Worker"))
    assert launcher["command"][2] == (
        "cd /data && exec mpirun -n 4 --bind-to none -x OMP_NUM_THREADS=4 leapmpi train papers --epochs 3 "
        "--run runs/leapmpi --device cuda"
    )
    assert worker["resources"]["limits"] == {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 2}
    assert replicas["Worker"]["replicas"] == job["spec"]["slotsPerWorker"] == 2


@pytest.mark.parametrize(
    ("given", "kubernetes", "pbs", "slurm"),
    [
        ("4096", '"memory": "4096Mi"', "mem=4096mb", "--mem=4096M"),
        ("64gb", '"memory": "64Gi"', "mem=64gb", "--mem=64G"),
        ("0", '"cpu": 1\n', "ncpus=1:mpiprocs=1:ompthreads=1\n", "--mem=0\n"),
    ],
)
def test_memory_is_written_as_each_scheduler_reads_it(submitted, given, kubernetes, pbs, slurm):
    memory = ["--memory-per-node", given]
    assert kubernetes in submitted(*KUBERNETES, *memory, "train", "papers")
    assert pbs in submitted("--scheduler", "pbs", *memory, *TRAIN)
    assert slurm in submitted(*memory, *TRAIN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scheduler", "kubernetes", "train", "d"], "--scheduler kubernetes: name the container image"),
        (["--scheduler", "kubernetes", "--image", "i", *TRAIN], "--prepare: jobs of kubernetes do not wait for others"),
        (
            ["--scheduler", "flux", "--prepare-tasks", "2", *TRAIN],
            "--prepare-tasks: jobs of this scheduler have no arrays",
        ),
        (["--prepare-tasks", "2", "--prepare", "synth g.h5", "train", "data"], "'synth g.h5' has no shares to give"),
        (["--prepare-tasks", "2", "--prepare", "import e g --share=0/2", "train", "data"], "has no shares to give"),
        (
            [*KUBERNETES, "--name", "A", "train", "d"],
            "Kubernetes allows at most 54 lower-case letters",
        ),
        ([*KUBERNETES, "--name", "1st", "train", "d"], "with a letter first and no dash at the end"),
        ([*KUBERNETES, "--name", "ends-", "train", "d"], "and no dash at the end"),
        ([*KUBERNETES, "--name", "\u00e4", "train", "d"], "lower-case letters"),
        ([*KUBERNETES, "--nodes", "11", "--name", 54 * "a", "train", "d"], "at most 53 lower-case letters"),
        ([*KUBERNETES, "--image", "", "train", "d"], "name the container image"),
        ([*KUBERNETES, "--image", "my image", "train", "d"], "--image 'my image' is not the name of an image"),
        ([*KUBERNETES, "--image", "site/Image:1", "train", "d"], "'site/Image:1' is not the name of an image"),
        ([*KUBERNETES, "--volume-claim", "my_graphs", "train", "d"], "'my_graphs' is not the name of a claim"),
        ([*KUBERNETES, "--memory-per-node", "12X", "train", "d"], "--memory-per-node: '12X' is not a size of memory"),
        (["--memory-per-node=-4G", *TRAIN], "--memory-per-node: '-4G' is not a size of memory"),
        (["--scheduler", "pbs", "--stage", "/tmp", *TRAIN], "--stage: only jobs of Slurm have it, not those of PBS"),
        (
            ["--scheduler", "flux", "--memory-per-node", "4G", *TRAIN],
            "--memory-per-node: only jobs of Slurm, PBS and Kubernetes have it, not those of Flux",
        ),
        ([*KUBERNETES, "--account", "a", "train", "d"], "--account: only jobs of Slurm, PBS and Flux have it"),
        (["--image", "i", *TRAIN], "--image: only jobs of Kubernetes have it, not those of Slurm; leave it out"),
        (["--scheduler", "flux", "--launcher", "srun", *TRAIN], "--launcher: srun is Slurm's"),
        (["--scheduler", "pbs", "--time", "soon", *TRAIN], "'soon' is not a time limit"),
        (["--scheduler", "lsf", *TRAIN], "--scheduler"),
    ],
)
def test_what_a_scheduler_cannot_do_is_one_sentence(submitted, words, said):
    error = submitted(*words, code=2)
    assert said in error
    assert error.count("\n") == 1


def test_time_limits():
    written = {"90": 5400, "1:30": 90, "02:00:05": 7205, "2-12": 216_000, "1-00:30": 88_200}
    assert {text: seconds_of(text) for text in written} == written
    assert clock(216_005) == "60:00:05"
    with pytest.raises(ConfigError, match="'soon' is not a time limit"):
        seconds_of("soon")
