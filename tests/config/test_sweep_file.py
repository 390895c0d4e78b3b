"""Sweep files: which runs they stand for, what is refused, and training all of them or one."""

import json

import pytest

from leapmpi.cli.main import main
from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import read_sweep
from leapmpi.errors import ConfigError
from leapmpi.runs.run import load_run
from leapmpi.runs.run_lock import RunLock

FILE = """
train.epochs = 1
model.hidden = 8
[sweep]
train.lr = [0.01, 0.1]
sampling.fanout = ["5,5", [3, "all"]]
[[point]]
strategy.name = "pull"
[[point]]
strategy.name = "leap"
train.seed = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(FILE)
    return path


def test_points_are_combined_with_every_product_of_values(file, tmp_path):
    sweep = read_sweep(file)
    shared = Config().assigned(sweep.base)
    configs = [sweep.config(index, shared, tmp_path) for index in range(len(sweep.points))]
    found = [(c.strategy.name, c.train.seed, c.train.lr, c.sampling.fanout) for c in configs]
    assert found == [
        (name, seed, lr, fanout)
        for name, seed in (("pull", 0), ("leap", 3))
        for lr in (0.01, 0.1)
        for fanout in ((5, 5), (3, -1))
    ]
    assert {c.model.hidden for c in configs} == {8}
    folders = [c.run.folder for c in configs]
    assert len(set(folders)) == len(folders) == 8
    assert folders[5] == str(tmp_path / "5-name=leap-seed=3-lr=0.01-fanout=3,all")


def test_folder_names_are_plain_even_where_values_are_not(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text('[sweep]\ndata = ["/a/b/../one two", "../x/y"]\n')
    sweep = read_sweep(path)
    assert [sweep.name(index) for index in (0, 1)] == ["0-data=one_two", "1-data=y"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.epochs = 3", "nothing to sweep"),
        ("sweep = 3", "write swept keys under [sweep]"),
        ("[point]\nlr = 3", "write swept keys under [sweep]"),
        ('point = ["a"]', "write swept keys under [sweep]"),
        ("[sweep]\ntrain.lr = 0.1", "[sweep] train.lr: give a list of values, such as [1, 2], not 0.1"),
        ("[sweep]\ntrain.lr = []", "give a list of values"),
        ("[sweep]\ntrain.lrr = [1]", "run 0: unknown key 'train.lrr'; did you mean 'train.lr'?"),
        ("[sweep]\ntrain.lr = [1, 'x']", "run 1: train.lr: 'x' is not a number"),
        ("[sweep]\nrun.folder = ['a']", "run.folder cannot be swept"),
        ("[sweep]\ntrain.lr = [1]\n[[point]]\ntrain.lr = 2", "train.lr is both under [sweep] and in a [[point]]"),
        ("x = 1\n[sweep]\ntrain.lr = [1]", "unknown key 'x'"),
    ],
)
def test_what_cannot_be_swept_is_refused(text, said, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_sweep(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--lr", "3"], "train.lr is swept by"),
        (["--set", "train.lr=3"], "train.lr is swept by"),
        (["--index", "8"], "no run 8; its runs are 0 to 7"),
        (["--index", "-1"], "no run -1"),
        (["--index", "x"], "argument --index: invalid int value"),
    ],
)
def test_flags_that_do_not_fit_the_file_are_refused(flags, said, file, capsys):
    assert main(["sweep", str(file), "--list", *flags]) == 2
    assert said in capsys.readouterr().err


def test_all_runs_are_trained_once_and_one_that_cannot_be_leaves_the_others(small_data, tmp_path, capsys):
    path, folder = tmp_path / "few.toml", tmp_path / "runs"
    path.write_text(f'data = "{small_data}"\nrun.folder = "{folder}"\n[[point]]\ntrain.seed = 1\n'
                    '[[point]]\nevaluate.metric = "roc-auc"\n[[point]]\ntrain.seed = 2\n')  # fmt: skip
    flags = ["--epochs", "1", "--hidden", "8", "--threads", "1", "--log-level", "error"]
    assert main(["sweep", str(path), "--index", "2", *flags]) == 0
    assert [each.name for each in folder.iterdir()] == ["2-seed=2"]
    first = json.loads((folder / "2-seed=2" / "summary.json").read_text())
    capsys.readouterr()

    assert main(["sweep", str(path), *flags]) == 2
    output, errors = capsys.readouterr()
    assert "run 1: evaluate.metric: roc-auc needs 2 classes" in errors
    assert f"run 2: {folder}/2-seed=2 is finished" in output
    assert sorted(each.name for each in folder.iterdir()) == ["0-seed=1", "2-seed=2"]
    assert json.loads((folder / "2-seed=2" / "summary.json").read_text()) == first
    assert load_run(folder / "0-seed=1").config.train.seed == 1

    # More epochs of a finished run.
    flags[1] = "2"
    assert main(["sweep", str(path), "--index", "2", *flags]) == 0
    assert f"run 2: {folder}/2-seed=2 resumes after epoch 1" in capsys.readouterr().out
    assert len(load_run(folder / "2-seed=2").summary["epochs"]) == 2


def test_a_run_that_another_start_trains_is_left_to_it(small_data, tmp_path, capsys):
    path, folder, other = tmp_path / "few.toml", tmp_path / "runs", RunLock(4)
    path.write_text(f'data = "{small_data}"\nrun.folder = "{folder}"\n[sweep]\ntrain.seed = [1, 2]\n')
    (folder / "0-seed=1").mkdir(parents=True)
    other.take(folder / "0-seed=1")
    assert main(["sweep", str(path), "--epochs", "1", "--hidden", "8", "--threads", "1", "--log-level", "error"]) == 4
    assert "run 0: " + str(folder / "0-seed=1") + ": another start trains in this run" in capsys.readouterr().err
    other.release()
    assert list((folder / "0-seed=1").iterdir()) == []
    assert load_run(folder / "1-seed=2").finished
