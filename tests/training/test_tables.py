"""From a folder of tables to a scored model: roots see what is earlier than themselves, and nothing else."""

import json
import shlex

import pytest

pytest.importorskip("pyarrow")

from data_prep.cli import main as prep
from leapmpi.cli.main import main
from tests.support.documentation import commands
from tests.support.shop import NOISE, write_shop

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
    run = [each.words for each in commands("data_prep/TABLES.md")]
    assert 0 < len(run) <= 6
    for words in run:
        program = next(at for at, word in enumerate(words) if word in ("leapmpi", "leapmpi-prep"))
        called = main if words[program] == "leapmpi" else prep
        assert called(words[program + 1 :]) == 0, words
        if "--guess-schema" in words:
            # The user names tasks and labels.
            text = (tmp_path / "shop/schema.toml").read_text()
            (tmp_path / "schema.toml").write_text(text)
    assert json.loads((tmp_path / "runs/shop/summary.json").read_text())["best"]

    # Predictions know no bounds: that is said.
    capsys.readouterr()
    assert main(["predict", "data", "runs/shop", "--out", "scores.csv"]) == 0
    assert "predict reads edges of all times" in " ".join(capsys.readouterr().out.split())
