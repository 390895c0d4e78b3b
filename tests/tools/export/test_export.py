"""`leapmpi export`: what other tools read is what the run recorded."""

import csv
import json
import re
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from leapmpi import Config, load_run, train
from leapmpi.cli.main import main
from leapmpi.system import atomic_files
from leapmpi.tools.export.export_run import KINDS
from leapmpi.tools.export.run_series import RunSeries
from tests.support.graphs import random_graph
from tests.support.launch import PROJECT
from tests.support.whole_graph import whole_outputs

GRAPH = random_graph(n=240, degree=6)
PLAIN = ("csv", "mlflow", "mllog", "openmetrics")
"""Formats that need no other library."""


@pytest.fixture
def exported(capsys, tmp_path):
    """A function that exports to a new place and returns it."""

    def run(path, kind, name="out", *flags):
        assert main(["export", str(path), str(tmp_path / name), "--to", kind, *flags]) == 0
        output, errors = capsys.readouterr()
        assert (output, errors) == (f"{kind}: {tmp_path / name}\n", "")
        return tmp_path / name

    return run


@pytest.fixture
def running(finished_run, tmp_path):
    """The run as it was in its third epoch: no summary, and a record that is being written."""
    folder = shutil.copytree(finished_run.path, tmp_path / "running")
    (folder / "summary.json").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    epochs = [number for number, line in enumerate(lines) if json.loads(line)["event"] == "epoch"]
    (folder / "metrics.jsonl").write_text("".join(lines[: epochs[2]]) + lines[epochs[2]][:40])
    return load_run(folder)


def records(run):
    return [record for record in run.metrics() if record["event"] == "epoch"]


def content(path):
    """The bytes of a file, or of all files below a folder."""
    if path.is_file():
        return path.read_bytes()
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def samples(path):
    """The samples of a text of OpenMetrics, by name and labels."""
    lines = path.read_text().splitlines()
    assert lines[-1] == "# EOF"
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def tensors(path):
    """The arrays and the header of a safetensors file, by its published format."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = header.pop("__metadata__")
    kinds = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
    return {
        name: np.frombuffer(data[8 + length :][slice(*each["data_offsets"])], kinds[each["dtype"]]).reshape(
            each["shape"]
        )
        for name, each in header.items()
    }, about


@pytest.mark.parametrize("kind", [*PLAIN, "safetensors", "tensorboard"])
def test_equal_runs_give_equal_bytes(finished_run, exported, kind):
    if kind not in PLAIN:
        pytest.importorskip(kind)
    assert content(exported(finished_run.path, kind, "a")) == content(exported(finished_run.path, kind, "b"))


def test_a_table_has_a_row_for_each_epoch(finished_run, exported):
    rows = list(csv.DictReader(exported(finished_run.path, "csv").open(newline="")))
    found = records(finished_run)
    assert [int(row["epoch"]) for row in rows] == [each["epoch"] for each in found]
    assert [float(row["loss"]) for row in rows] == [each["loss"] for each in found]
    assert [float(row["score/test"]) for row in rows] == [each["accuracy"]["test"] for each in found]
    assert [int(row["rows/local"]) for row in rows] == [each["rows"]["local"] for each in found]


def test_openmetrics_hold_the_last_epoch(finished_run, exported):
    found, last = samples(exported(finished_run.path, "openmetrics")), records(finished_run)[-1]
    run = f'run="{finished_run.path.name}"'
    assert found[f"leapmpi_epoch_loss{{{run}}}"] == last["loss"]
    assert found[f'leapmpi_epoch_score{{{run},split="val"}}'] == last["accuracy"]["val"]
    assert found[f'leapmpi_epoch_rows{{{run},place="local"}}'] == last["rows"]["local"]
    assert found[f"leapmpi_epoch{{{run}}}"] == 3
    assert found[f'leapmpi_status{{{run},state="finished"}}'] == 1


def test_a_run_that_goes_on_is_exported_without_its_last_half_line(running, exported):
    found = samples(exported(running.path, "openmetrics"))
    assert found['leapmpi_epoch{run="running"}'] == 2
    assert found['leapmpi_status{run="running",state="running"}'] == 1
    assert "run_stop" not in exported(running.path, "mllog", "log").read_text()


def test_mlflow_lists_every_epoch(finished_run, exported):
    (run,) = [path.parent for path in exported(finished_run.path, "mlflow").glob("1/*/meta.yaml")]
    lines = [line.split() for line in (run / "metrics" / "loss").read_text().splitlines()]
    assert [(float(value), int(step)) for _, value, step in lines] == [
        (record["loss"], record["epoch"]) for record in records(finished_run)
    ]
    assert (run / "params" / "train.lr").read_text() == "0.05"
    assert "status: 3\n" in (run / "meta.yaml").read_text()


def test_mlperf_lines_are_in_order(finished_run, exported):
    lines = exported(finished_run.path, "mllog").read_text().splitlines()
    found = [json.loads(re.fullmatch(r":::MLLOG (\{.+\})", line)[1]) for line in lines]
    assert [each["time_ms"] for each in found] == sorted(each["time_ms"] for each in found)
    keys = [each["key"] for each in found]
    assert keys[-1] == "run_stop"
    assert found[-1]["metadata"]["status"] == "success"
    assert keys.index("init_stop") < keys.index("run_start") < keys.index("epoch_start") < keys.index("eval_accuracy")
    scores = [each["value"] for each in found if each["key"] == "eval_accuracy"]
    assert scores == [record["accuracy"]["val"] for record in records(finished_run)]


def test_tensorboard_reads_every_number(finished_run, exported):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(exported(finished_run.path, "tensorboard")))
    events.Reload()
    points = list(RunSeries(finished_run).points())
    assert set(events.Tags()["scalars"]) == {point.name for point in points}
    found = [(event.step, event.value, event.wall_time) for event in events.Scalars("loss")]
    expected = [(point.epoch, np.float32(point.value), point.time) for point in points if point.name == "loss"]
    assert found == expected
    assert b"| train.lr | 0.05 |" in events.Tensors("settings")[0].tensor_proto.string_val[0]


def test_safetensors_may_be_read_by_those_who_may_read_other_new_files(finished_run, exported, tmp_path):
    pytest.importorskip("safetensors")
    (tmp_path / "other").touch()
    written = exported(finished_run.path, "safetensors", "w")
    assert written.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_safetensors_hold_the_weights(finished_run, exported):
    pytest.importorskip("safetensors")
    found, about = tensors(exported(finished_run.path, "safetensors", "w", "--weights", "final"))
    expected = finished_run.weights("final")
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert json.loads(about["leapmpi"])["model"] == "sage"


MODELS = {
    "gcn": {},
    "sage": {"model.options.aggregate": "mean"},
    "sage, max": {"model.options.aggregate": "max"},
    "gat": {"model.options.heads": 2},
    "gin": {"model.options.learn_scalars": True, "model.options.mlp_layers": 3},
}


@pytest.mark.parametrize("model", MODELS)
def test_the_loader_of_the_page_gives_the_same_logits(small_data, tmp_path, exported, model):
    pytest.importorskip("safetensors")
    place = {"folder": str(tmp_path / "run"), "threads": 1, "log_level": "error"}
    values = {"data": str(small_data), "model.name": model.split(",")[0], "model.hidden": 8, "run": place}
    run = train(Config.from_values({**values, "train.epochs": 1, "train.batch_size": 64, **MODELS[model]}))

    # The code of the page, which imports nothing of leapmpi.
    page = (PROJECT / "leapmpi/tools/export/README.md").read_text()
    loader = {}
    exec(re.search(r"```python\n(.+?)```", page, re.DOTALL)[1], loader)
    about, weights = loader["load"](exported(run.path, "safetensors", "model.safetensors"))
    destination = torch.from_numpy(np.repeat(np.arange(GRAPH.vertices), np.diff(GRAPH.indptr)))
    source, x = torch.from_numpy(GRAPH.indices.astype(np.int64)), torch.from_numpy(np.asarray(GRAPH.features))
    found = loader["logits"](about, weights, x, source, destination)
    torch.testing.assert_close(
        found, torch.from_numpy(whole_outputs(run.config, GRAPH, run.weights())), atol=1e-5, rtol=1e-4
    )


def test_the_end_of_the_name_tells_the_format(finished_run, capsys, tmp_path):
    assert main(["export", str(finished_run.path), str(tmp_path / "m.prom")]) == 0
    assert samples(tmp_path / "m.prom")
    assert capsys.readouterr().out == f"openmetrics: {tmp_path / 'm.prom'}\n"


def test_without_a_place_the_run_folder_is_the_place(running, capsys):
    for _ in range(2):  # again and again, as it goes on
        assert main(["export", str(running.path), "--to", "mllog"]) == 0
    assert [path.name for path in (running.path / "exports").iterdir()] == ["mllog.txt"]


def test_what_is_not_installed_is_told_and_nothing_is_left(running, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    assert main(["export", str(running.path), "--to", "tensorboard"]) == 2
    assert "pip install 'leapmpi[tensorboard]'" in capsys.readouterr().err
    assert not (running.path / "exports").exists()


def test_wandb_holds_every_epoch(finished_run, exported):
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    (file,) = exported(finished_run.path, "wandb").glob("wandb/offline-run-*/*.wandb")
    found = []
    for record in wandb_records(file.read_bytes()):
        message = messages.Record()
        message.ParseFromString(record)
        if message.WhichOneof("record_type") == "history":
            found.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in message.history.item})
    expected = [(record["epoch"], record["loss"]) for record in records(finished_run)]
    assert [(each["epoch"], each["loss"]) for each in found] == expected


def wandb_records(data):
    """The records of a log of Weights & Biases: LevelDB's format, after seven bytes, in blocks of 32 KiB."""
    place, record = 7, b""
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def test_several_models_are_told_apart(small_data, tmp_path, exported, capsys):
    values = {"data": str(small_data), "model.hidden": 8, "train.epochs": 1}
    place = {"folder": str(tmp_path / "run"), "threads": 1, "log_level": "error"}
    run = train(Config.from_values({**values, "strategy.vary": ["model.seed=1,2"], "run": place}))
    found = samples(exported(run.path, "openmetrics"))
    (record,) = records(run)
    for model in record["models"]:
        assert found[f'leapmpi_epoch_model_loss{{run="run",model="{model["model"]}"}}'] == model["loss"]
    assert main(["export", str(run.path), str(tmp_path / "m.safetensors")]) == 2
    assert "holds several models; give the number of one: --model K" in capsys.readouterr().err
    assert "eval_accuracy" in exported(run.path, "mllog", "log", "--model", "1").read_text()


def test_all_formats_are_listed(capsys):
    with pytest.raises(SystemExit):
        main(["export", "--formats"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == KINDS.names()


REFUSED = [
    ("RUN", 2, "choose a format: --to csv|mlflow|mllog|"),
    ("RUN out.xyz", 2, "or an output ending in .csv, .prom, .safetensors"),
    ("RUN out --to tensorbord", 2, "unknown export format 'tensorbord'; did you mean 'tensorboard'?"),
    ("nothing out.prom", 4, "nothing does not exist"),
    ("RUN here.prom", 3, "here.prom exists already; choose another name, or pass --overwrite"),
    ("RUN none/out.prom", 3, "none does not exist; make it first"),
    ("RUN out.prom --model 1", 4, "holds one model; leave --model out"),
    ("EMPTY out.prom", 4, "holds no records yet"),
]


@pytest.mark.parametrize(("words", "code", "sentence"), REFUSED)
def test_refused_in_one_sentence(finished_run, capsys, tmp_path, monkeypatch, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    Path("here.prom").touch()
    empty = shutil.copytree(finished_run.path, tmp_path / "empty")
    (empty / "metrics.jsonl").write_text('{"event": "st')
    before = sorted(tmp_path.rglob("*"))
    named = {"RUN": str(finished_run.path), "EMPTY": "empty"}
    assert main(["export", *(named.get(word, word) for word in words.split())]) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(r"leapmpi: error: .+\n", errors)
    assert sentence in errors
    assert sorted(tmp_path.rglob("*")) == before


def test_of_two_exports_to_one_place_the_first_to_finish_stays(finished_run, tmp_path, capsys, monkeypatch):
    real, codes, out = atomic_files.put_in_place, [], tmp_path / "out"
    words = ["export", str(finished_run.path), str(out), "--to"]

    def put_in_place(*arguments, **settings):
        if not codes:
            codes.append(None)
            codes[0] = main([*words, "mllog"])
        real(*arguments, **settings)

    monkeypatch.setattr(atomic_files, "put_in_place", put_in_place)
    assert main([*words, "openmetrics"]) == 3
    assert codes == [0]
    errors = capsys.readouterr().err
    assert errors.startswith(f"leapmpi: error: {out} exists already: another process made it in the meantime")
    assert out.read_text().startswith(":::MLL")
    assert list(tmp_path.iterdir()) == [out]
