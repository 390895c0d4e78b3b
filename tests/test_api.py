"""The Python API: train, open_dataset, load_run, and the errors they raise."""

import logging
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch

import leapmpi
from leapmpi.errors import ConfigError, DataError, RunFolderError
from leapmpi.runs import text_tables


def config(data, folder, **more):
    return leapmpi.Config.from_values(
        {"data": str(data), "run": {"folder": str(folder), "log_level": "error", "threads": 1}, "train.epochs": 2}
        | more
    )


def test_train_returns_the_run_that_load_run_reads(small_data, tmp_path):
    asked = config(small_data, tmp_path / "run")
    run = leapmpi.train(asked)
    again = leapmpi.load_run(tmp_path / "run")
    assert run.path == again.path == tmp_path / "run"
    # One rank has no choice of strategy, and records what it took.
    assert again.config == run.config == asked.replaced({"strategy.name": "leap"})
    assert again.summary == run.summary
    assert len(again.summary["epochs"]) == 2
    assert [record["event"] for record in again.metrics()] == ["start", "banner", "epoch", "epoch", "end"]
    for which in ("best", "final"):
        weights = again.weights(which)
        assert weights
        assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in weights.values())


def test_only_public_names_show():
    errors = ["DataError", "Interrupted", "LaunchError", "LeapmpiError", "ResourceError", "RunFolderError"]
    functions = ["__version__", "load_run", "open_dataset", "predict", "train"]
    assert dir(leapmpi) == ["Config", "ConfigError", *errors, *functions]
    assert all(hasattr(leapmpi, name) for name in dir(leapmpi))


def test_the_package_runs_as_a_module():
    for module in ("leapmpi", "leapmpi.cli"):
        job = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=30)
        assert (job.returncode, job.stdout, job.stderr) == (0, f"leapmpi {leapmpi.__version__}\n", "")


def test_train_twice_gives_the_same_and_leaves_logging_as_it_was(small_data, tmp_path):
    logger, mine = logging.getLogger("leapmpi"), logging.NullHandler()
    logger.addHandler(mine)
    before = [*logger.handlers], logger.level, logger.propagate, logging.raiseExceptions
    runs = [leapmpi.train(config(small_data, tmp_path / name)) for name in ("a", "b")]
    digests = {run.summary["parameters_digest"] for run in runs}
    assert len(digests) == 1
    assert ([*logger.handlers], logger.level, logger.propagate, logging.raiseExceptions) == before
    logger.removeHandler(mine)


def test_train_on_a_communicator_of_the_caller(small_data, tmp_path, finished_run):
    from mpi4py import MPI

    run = leapmpi.train(config(small_data, tmp_path / "run"), comm=MPI.COMM_SELF)
    assert run.summary["ranks"] == 1
    assert MPI.COMM_SELF.rank == 0  # still in use: a run frees only what it made


def test_settings_are_called_as_flags_are(small_data, tmp_path):
    run = leapmpi.train(
        str(small_data), run=tmp_path / "run", epochs=1, batch_size=32, fanout="5,5", eval_fanout=3, log_level="error"
    )
    assert (run.config.train.batch_size, run.config.sampling.fanout) == (32, (5, 5))
    assert run.config.evaluation_fanout == (3, 3)
    with pytest.raises(ConfigError, match=r"no setting is called epoch; did you mean 'epochs'\?"):
        leapmpi.train(str(small_data), epoch=1)


def test_numbers_of_numpy_are_settings(small_data, tmp_path):
    numbers = {"lr": np.float32(0.5), "epochs": np.int64(1), "hidden": np.uint8(4)}
    run = leapmpi.train(small_data, run=tmp_path / "run", log_level="error", **numbers)
    assert (run.config.train.lr, run.config.train.epochs, run.config.model.hidden) == (0.5, 1, 4)


def test_ids_to_predict_are_in_a_file(finished_run):
    for ids in (np.arange(3), [1, 2]):
        with pytest.raises(ConfigError, match="give the name of a split or of a file of ids"):
            finished_run.predict(vertices=ids)


def test_epochs_are_a_table(finished_run, monkeypatch):
    run = leapmpi.load_run(finished_run.path)
    monkeypatch.setattr(text_tables.importlib.util, "find_spec", lambda name: None)
    found = run.epochs
    assert [each["epoch"] for each in found] == [1, 2, 3]
    assert [each["val"] for each in found] == [each["accuracy"]["val"] for each in run.summary["epochs"]]
    first, *rows = repr(found).splitlines()
    assert first.split()[:3] == ["epoch", "loss", "val"]
    assert len(rows) == found._repr_html_().count("<tr>") - 1 == 3


def test_a_run_answers_and_reports(finished_run, small_data, tmp_path, monkeypatch):
    run = leapmpi.load_run(finished_run.path)
    classes = run.predict(what="classes", vertices="test")
    test = leapmpi.open_dataset(small_data).splits.test
    labels = np.concatenate([leapmpi.open_dataset(small_data).part(part).labels for part in range(4)])[test]
    assert classes.shape == test.shape
    assert np.mean(classes[labels >= 0] == labels[labels >= 0]) > 1 / 3
    page = run.report(tmp_path / "page.html")
    assert "on val and" in page.path.read_text()
    assert page._repr_html_().count("<") == 2
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"leapmpi\.predict"):
        run.predict()


class Net(torch.nn.Module):
    """Sum of neighbours, then one linear layer; `made` counts the constructions."""

    made = 0

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.linear = torch.nn.Linear(in_channels, out_channels)
        type(self).made += 1

    def forward(self, x, adjs):
        for edge_index, _, size in adjs:
            source, target = edge_index
            x = x[: size[1]].index_add(0, target, x[source])
        return self.linear(x)


def test_a_class_is_a_model(small_data, tmp_path):
    settings = {"epochs": 1, "fanout": "5,5", "threads": 1, "log_level": "error"}
    run = leapmpi.train(small_data, model=Net, run=tmp_path / "a", **settings)
    assert run.config.model.name == f"{__name__}:Net"
    assert Net.made
    assert set(run.weights()) == {"linear.weight", "linear.bias"}

    # A class of a notebook, which is defined once more.
    def made(rows):
        class Mine(Net):
            def forward(self, x, adjs):
                return super().forward(x, adjs) * rows

        Mine.__module__ = "__main__"
        return Mine

    with mock.patch.object(sys.modules["__main__"], "__file__", "", create=True):
        first, second = (
            leapmpi.train(small_data, model=made(rows), run=tmp_path / f"{rows}", **settings) for rows in (1, 2)
        )
        assert first.config.model.name == "__main__:Mine"
        assert first.curves["loss"][0] != second.curves["loss"][0]
    with pytest.raises(ConfigError, match="for code of your own give the class, Net"):
        leapmpi.train(small_data, model=Net(5, 3), **settings)


def test_a_cell_runs_twice(small_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"epochs": 1, "fanout": "5,5", "threads": 1, "log_level": "error"}
    assert leapmpi.train(small_data, **settings).path != leapmpi.train(small_data, **settings).path
    run = leapmpi.train(small_data, run="a", **settings)
    with pytest.raises(RunFolderError, match="from Python overwrite=True replaces it, and without run a new folder"):
        leapmpi.train(small_data, run="a", **settings)
    assert (
        leapmpi.train(small_data, run="a", overwrite=True, **settings | {"epochs": 2}).summary["epochs"][-1]["epoch"]
        == 2
    )
    # What cannot train leaves the finished run as it was.
    with pytest.raises(ConfigError):
        leapmpi.train(small_data, run="a", overwrite=True, task="regression", **settings)
    assert len(leapmpi.load_run(run.path).summary["epochs"]) == 2


def test_a_run_has_arrays_and_figures(finished_run, tmp_path):
    run = leapmpi.load_run(finished_run.path)
    curves = run.curves
    assert curves["epoch"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(curves["val"], [each["accuracy"]["val"] for each in run.summary["epochs"]])
    assert all(len(array) == 3 for array in curves.values())
    plot = run.plot()
    assert "<svg" in plot.save(tmp_path / "scores.html").read_text()
    assert plot._repr_html_().startswith("<iframe")
    assert len(repr(run.plot("loss")).splitlines()) == 2 + 3
    with pytest.raises(ConfigError, match=r"there is no figure 'score'; did you mean 'scores'\?"):
        run.plot("score")
    with pytest.raises(ConfigError, match="--png scores"):
        plot.save(tmp_path / "scores.png")


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda run, data: run.predict(wat="classes"), ConfigError, r"predict takes no wat; did you mean 'what'\?"),
        (lambda run, data: run.plot(3), ConfigError, "there is no figure 3"),
        (lambda run, data: leapmpi.load_run("a\0b"), RunFolderError, r"'a\\x00b': the run folder cannot be read"),
        (lambda run, data: leapmpi.train(data, run="x" * 300), RunFolderError, "the run folder cannot be used"),
        (lambda run, data: leapmpi.train(data, model_option={"heads": 2}), ConfigError, "a dict is not a setting"),
    ],
)
def test_mistakes_get_a_sentence(finished_run, small_data, call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call(leapmpi.load_run(finished_run.path), str(small_data))


def test_a_run_is_named_by_its_folder_too(finished_run, small_data, tmp_path):
    leapmpi.predict(str(finished_run.path), small_data, tmp_path / "a.npy", what="classes")
    leapmpi.predict(finished_run, small_data, tmp_path / "b.npy", what="classes")
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_open_dataset(small_data):
    dataset = leapmpi.open_dataset(small_data)
    assert (dataset.vertices, dataset.parts, dataset.feature_dim, dataset.classes) == (240, 4, 5, 3)
    assert leapmpi.open_dataset(str(small_data)).uuid == dataset.uuid


def test_errors_have_one_base(small_data, finished_run, tmp_path):
    for error, action in (
        (ConfigError, lambda: leapmpi.Config.from_values({"train.lrr": 1})),
        (ConfigError, lambda: leapmpi.train(leapmpi.Config())),
        (DataError, lambda: leapmpi.open_dataset(tmp_path)),
        (DataError, lambda: leapmpi.train(config(tmp_path / "none", tmp_path / "run"))),
        (RunFolderError, lambda: leapmpi.load_run(tmp_path)),
        (RunFolderError, lambda: leapmpi.train(config(small_data, finished_run.path))),
    ):
        with pytest.raises(error) as caught:
            action()
        assert isinstance(caught.value, leapmpi.LeapmpiError)
    assert not (tmp_path / "run").exists()


def test_a_last_record_cut_short_by_a_crash_is_left_out(finished_run, tmp_path):
    (tmp_path / "config.toml").touch()
    lines = (finished_run.path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(lines[:-20])
    assert leapmpi.load_run(tmp_path).metrics() == finished_run.metrics()[:-1]
    (tmp_path / "metrics.jsonl").write_text("{cut\n" + lines)
    with pytest.raises(RunFolderError, match="line 1 is damaged"):
        leapmpi.load_run(tmp_path).metrics()
