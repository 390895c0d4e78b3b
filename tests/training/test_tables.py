"""From a folder of tables to a scored model: roots see what is earlier than themselves, and nothing else."""

import csv
import json
import shlex
from datetime import datetime
from pathlib import Path

import h5py
import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow
from pyarrow import parquet

from data_prep.cli import main as prep
from leapmpi.cli.main import main
from leapmpi.evaluation import outputs
from leapmpi.inference import batch_outputs
from tests.dataset.test_damage import flip_in_array
from tests.support.documentation import commands
from tests.support.shop import NOISE, SKU, write_purchases, write_shop

CUSTOMERS = 1500
SETTINGS = "--model rsage --fanout 1,9 --hidden 16 --epochs 12 --set train.lr=0.02 --batch-size 256 --threads 1"
BY_ROOT = "--sampler temporal --sampler-option bound=root"


def validation_accuracy(folder, sampler, *, leak):
    """Import the shop, train, and return the accuracy of the best epoch."""
    write_shop(folder / "shop", CUSTOMERS, leak=leak)
    assert prep(["import", str(folder / "shop"), str(folder / "shop.h5")]) == 0
    assert prep(["partition", str(folder / "shop.h5"), str(folder / "data"), "--parts", "1"]) == 0
    run = ["train", str(folder / "data"), "--run", str(folder / "run"), *shlex.split(f"{SETTINGS} {sampler}")]
    assert main(run) == 0
    return json.loads((folder / "run/summary.json").read_text())["best"]["val"]


def test_a_task_on_customers_is_learned_from_their_earlier_reviews(tmp_path, capsys):
    # A customer's own columns say nothing: a model of them scores a half.
    assert 0.75 < validation_accuracy(tmp_path, BY_ROOT, leak=False) <= 1 - NOISE + 0.05


def test_a_planted_leak_scores_no_better_than_chance(tmp_path, capsys):
    # Of 469 rows, a half give or take 0.023; the best of twelve epochs lies two to three of these higher.
    assert validation_accuracy(tmp_path, BY_ROOT, leak=True) < 0.5 + 4 * 0.023


def test_without_bounds_the_leak_is_found(tmp_path, capsys):
    assert validation_accuracy(tmp_path, "--sampler node-wise", leak=True) > 0.7


def test_the_commands_of_the_page_about_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop", 60)
    every = [each.words for each in commands("data_prep/TABLES.md")]
    # Those about recommendations need labels of another kind (below).
    run = [words for words in every if not words[0].startswith("jobs/bench") and "runs/next" not in words]
    assert next(words for words in run if "evaluate" in words) in run[:6]
    for words in run:
        program = next(at for at, word in enumerate(words) if word in ("leapmpi", "leapmpi-prep"))
        if "task-table" in words:
            asked = parquet.read_table("shop/happy.parquet")
            parquet.write_table(asked.drop_columns("label"), "new.parquet")
        called = main if words[program] == "leapmpi" else prep
        assert called(words[program + 1 :]) == 0, words
        if "--guess-schema" in words:
            # The user names tasks and labels.
            text = (tmp_path / "shop/schema.toml").read_text()
            (tmp_path / "schema.toml").write_text(text)
    assert json.loads((tmp_path / "runs/shop/summary.json").read_text())["best"]

    # Keys and times of the user; each row reads what is earlier, as the scores do.
    table = csv.DictReader(Path("scores.csv").read_text().splitlines())
    found = {
        (row["customer_id"], row["asked"][:10]): float(row["logit_true"]) > float(row["logit_false"]) for row in table
    }
    asked = [row for row in asked.to_pylist() if datetime(2020, 7, 1) <= row["asked"] < datetime(2020, 9, 1)]
    right = [found[str(row["customer_id"]), f"{row['asked']:%Y-%m-%d}"] == row["label"] for row in asked]
    capsys.readouterr()
    assert main(["evaluate", "data", "runs/shop", "--eval-fanout", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["val"] == pytest.approx(sum(right) / len(right))

    # The dataset's own rows have the same bits.
    for what in ("--task-table=new.h5", ""):
        assert main(["predict", "data", "runs/shop", "--out", f"rows{what[:6]}.npy", *filter(None, [what])]) == 0
    np.testing.assert_array_equal(np.load("rows.npy"), np.load("rows--task.npy"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A dataset of a small shop with a learned category in its task, and a run on it."""
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder / "shop", 60)
    asked = parquet.read_table(folder / "shop/happy.parquet")
    channel = pyarrow.array(["web", "shop", None][number % 3] for number in range(len(asked)))
    parquet.write_table(asked.append_column("channel", channel), folder / "shop/happy.parquet")
    schema = (folder / "shop/schema.toml").read_text()
    (folder / "shop/schema.toml").write_text(schema + 'columns.channel = "learned"\ncolumns.asked = "date"\n')
    assert prep(["import", str(folder / "shop"), str(folder / "shop.h5")]) == 0
    assert prep(["partition", str(folder / "shop.h5"), str(folder / "data"), "--parts", "2"]) == 0
    settings = f"--model rsage --fanout 2,2 --hidden 4 --epochs 1 --threads 1 --missing-features learned:4 {BY_ROOT}"
    assert main(["train", str(folder / "data"), "--run", str(folder / "run"), *shlex.split(settings)]) == 0
    return folder


def test_models_on_a_device_train_with_bounds_as_on_the_host(shop, tmp_path, capsys):
    settings = f"--model rsage --fanout 2,2 --hidden 4 --epochs 1 --threads 1 --missing-features learned:4 {BY_ROOT}"
    run = ["train", str(shop / "data"), "--run", str(tmp_path / "run"), *shlex.split(settings), "--device", "stand-in"]
    assert main(run) == 0
    found, expected = (
        json.loads((folder / "run/summary.json").read_text())["epochs"][0]["loss"] for folder in (tmp_path, shop)
    )
    assert found == pytest.approx(expected, rel=1e-5)


def test_batches_of_few_edges_score_the_same(shop, monkeypatch, capsys):
    def scores():
        assert main(["evaluate", str(shop / "data"), str(shop / "run"), "--eval-fanout", "all", "--json"]) == 0
        return {key: each for key, each in json.loads(capsys.readouterr().out).items() if key in ("val", "test")}

    whole, sizes, cut = scores(), [], outputs.cut_by_edges

    def counted(*arguments):
        found = cut(*arguments)
        sizes.append(len(found))
        return found

    # A hub is read for each root that reaches it: batches hold as many edges as fit, not as many roots.
    monkeypatch.setattr(outputs, "cut_by_edges", counted)
    monkeypatch.setattr(batch_outputs, "_MOST_EDGES", 40)
    assert scores() == whole
    assert max(sizes) > 3


def test_new_rows_read_learned_categories_and_encoded_columns(shop, tmp_path, capsys):
    rows, run = str(tmp_path / "rows.h5"), ["predict", str(shop / "data"), str(shop / "run"), "--out"]
    assert prep(["task-table", str(shop / "data"), str(shop / "shop/happy.parquet"), rows]) == 0
    assert main([*run, str(tmp_path / "new.parquet"), "--task-table", rows]) == 0
    assert main([*run, str(tmp_path / "own.npy")]) == 0
    found = parquet.read_table(tmp_path / "new.parquet")
    assert found.column_names == ["vertex", "customer_id", "asked", "values"]
    np.testing.assert_array_equal(np.stack(found["values"].to_numpy()), np.load(tmp_path / "own.npy"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"customer_id": pyarrow.array(["a", "b"])}, "no customer_id names a row of customers"),
        ({"asked": pyarrow.array([None, 5], pyarrow.timestamp("s"))}, "1 row with this fault: no time"),
        ({"channel": None}, "the table has no column 'channel'"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_faults_of_new_rows_are_refused(shop, tmp_path, capsys, change, message):
    rows = parquet.read_table(shop / "shop/happy.parquet").slice(0, 2)
    for name, column in change.items():
        place = rows.column_names.index(name)
        rows = rows.drop_columns(name) if column is None else rows.set_column(place, name, column)
    parquet.write_table(rows, tmp_path / "new.parquet")
    assert prep(["task-table", str(shop / "data"), str(tmp_path / "new.parquet"), str(tmp_path / "rows.h5")]) != 0
    assert message in capsys.readouterr().err
    assert not (tmp_path / "rows.h5").exists()


def test_a_damaged_file_of_rows_is_named(shop, tmp_path, capsys):
    path, run = tmp_path / "rows.h5", ["predict", str(shop / "data"), str(shop / "run"), "--out"]
    assert prep(["task-table", str(shop / "data"), str(shop / "shop/happy.parquet"), str(path)]) == 0
    whole = path.read_bytes()

    def said(content):
        path.write_bytes(content)
        capsys.readouterr()
        assert main([*run, str(tmp_path / "out.csv"), "--task-table", str(path)]) == 3
        errors = capsys.readouterr().err
        assert errors.count("\n") == 1
        return errors

    assert "rows.h5 is not an HDF5 file; make it by leapmpi-prep task-table" in said(b"customer,asked\n")
    assert "rows.h5 is truncated" in said(whole[: len(whole) // 2])
    with h5py.File(path, "w") as file:
        file.attrs["format"] = "other"
    assert "not leapmpi-part; make it by" in said(path.read_bytes())
    path.write_bytes(whole)
    flip_in_array(path, "relation", 0, 200)
    assert "rows.h5: relation 200" in said(path.read_bytes())
    path.write_bytes(whole)
    flip_in_array(path, "task/texts", 5, ord("\n"))
    assert "rows.h5: task/texts" in said(path.read_bytes())


def test_new_rows_of_another_dataset_are_refused(shop, tmp_path, capsys):
    rows, other = str(tmp_path / "rows.h5"), str(tmp_path / "other")
    assert prep(["task-table", str(shop / "data"), str(shop / "shop/happy.parquet"), rows]) == 0
    assert prep(["partition", str(shop / "shop.h5"), other, "--parts", "1"]) == 0
    run = [str(shop / "run"), "--out", str(tmp_path / "out.csv")]
    assert main(["predict", other, *run, "--task-table", rows]) != 0
    assert "was not made for" in capsys.readouterr().err
    assert main(["predict", str(shop / "data"), *run, "--what", "embeddings"]) != 0
    assert "the run has bound=root" in capsys.readouterr().err


def test_code_of_a_schema_runs_only_if_the_command_names_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop", 30)
    (tmp_path / "words.py").write_text("def lengths(texts):\n    return [[len(each)] for each in texts]\n")
    asked = parquet.read_table("shop/happy.parquet")
    words = pyarrow.array(["good", "bad", None][number % 3] for number in range(len(asked)))
    parquet.write_table(asked.append_column("words", words), "shop/happy.parquet")
    schema = (tmp_path / "shop/schema.toml").read_text()
    (tmp_path / "shop/schema.toml").write_text(
        f'{schema}columns.words = {{encoder = "text", function = "words.py:lengths"}}\n'
    )
    named = ["--code", "words.py:lengths"]
    assert prep(["import", "shop", "shop.h5"]) != 0
    assert "columns.words is encoded by code, words.py:lengths; if you trust it, add" in capsys.readouterr().err
    assert prep(["import", "shop", "shop.h5", *named]) == 0
    assert prep(["partition", "shop.h5", "data", "--parts", "1"]) == 0
    assert prep(["task-table", "data", "shop/happy.parquet", "new.h5"]) != 0
    assert "'words' of happy is encoded by code" in capsys.readouterr().err
    assert prep(["task-table", "data", "shop/happy.parquet", "new.h5", *named]) == 0


def test_lists_of_entities_are_recommended(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "shop", 120, 24)
    assert prep(["import", "shop", "shop.h5"]) == 0
    assert prep(["partition", "shop.h5", "data", "--parts", "1"]) == 0
    run = f"--task recommend --fanout 1,4 --model rsage --hidden 16 --batch-size 40 --set train.lr=0.02 {BY_ROOT}"
    assert main(["train", "data", "--run", "run", "--epochs", "20", "--threads", "1", *shlex.split(run)]) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    # The best possible has two of eight equals first.
    assert summary["best"]["val"] > 0.3
    capsys.readouterr()
    assert main(["evaluate", "data", "run", "--metric", "recall-5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test"] > 0.4

    assert prep(["task-table", "data", "shop/next.parquet", "new.h5"]) == 0
    best = ["predict", "data", "run", "--task-table", "new.h5", "--what", "classes"]
    assert main([*best, "--top", "5", "--out", "best.csv"]) == 0
    rows = list(csv.DictReader(Path("best.csv").read_text().splitlines()))
    assert list(rows[0]) == ["customer", "at", *(f"best_{place}" for place in range(5))]
    bought = parquet.read_table("shop/next.parquet")["bought"].to_pylist()
    kinds = [{int(sku[len(SKU) :]) % 3 for sku in each} for each in bought]
    right = [int(row["best_0"][len(SKU) :]) % 3 in kind for row, kind in zip(rows, kinds, strict=True)]
    assert np.mean(right) > 0.9
    assert main([*best, "--out", "best.parquet"]) == 0
    assert parquet.read_table("best.parquet")["class_name"][0].as_py()[0] == rows[0]["best_0"]
    assert main([*best, "--top", "50", "--out", "more.csv"]) != 0
    assert "--top 50: the run ranks 24 entities" in capsys.readouterr().err
