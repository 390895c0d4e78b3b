"""The page about runs: one file, small, the same for the same input, whatever version wrote the folder."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.report.run_data import read_runs
from leapmpi.report.sections.run_report import run_page, run_sections
from tests.support.made_run import make_run


def page_of(*folders, **further):
    runs, _ = read_runs(folders)
    return run_page(runs, run_sections(runs, **further))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("large") / "run", ranks=64, epochs=10, iterations=1000)


def test_a_large_run_fits_in_a_small_file_that_needs_nothing_else(large):
    page = page_of(large)
    assert len(page.encode()) < 1_000_000
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import|<script|https?://", page)
    assert page.count("<figure>") == page.count("<summary>Numbers</summary>") > 10
    assert page == page_of(large)


def test_all_that_is_recorded_is_shown(large):
    page = page_of(large)
    for anchor in ("learning", "time", "traffic", "plan-beside-measured", "balance-and-memory",
                   "scores-of-the-best-epoch", "restarts-and-warnings", "dataset", "provenance"):  # fmt: skip
        assert f'id="{anchor}"' in page
    for name in ("batch-loss", "scores-over-seconds", "phases-by-rank", "pairs", "memory", "confusion",
                 "scores-by-class", "scores-by-degree", "scores-by-part"):  # fmt: skip
        assert f"--png {name}<" in page
    assert "leapmpi train data" in page
    assert "not recorded" not in page.partition('id="dataset"')[0]


def test_folders_of_older_versions_and_running_ones_say_what_they_lack(tmp_path):
    page = page_of(make_run(tmp_path / "old", by_rank=False, finished=False))
    assert "Seconds of each rank are not recorded" in page
    assert "bytes from rank to rank are not recorded" in page
    assert "Scores by class, degree and part are not recorded" in page
    assert "it has not ended" in page


def test_numbers_at_the_ends_of_their_range_are_drawn(tmp_path):
    folder = make_run(tmp_path / "run", epochs=3, iterations=300)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in lines:
        if "losses" in record:
            record["losses"] = [1.7e308 * (-1) ** (number // 2) for number in range(len(record["losses"]))]
            record["loss"] = 1e308 * (-1) ** record["epoch"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = page_of(folder)
    assert not re.search(r"\b(nan|inf)\b", page)
    for command in (["report", folder, "-o", tmp_path / "page.html"], ["compare", folder]):
        assert main([str(word) for word in command]) == 0


def test_more_ranks_than_a_record_lists_stand_in_groups(tmp_path):
    page = page_of(make_run(tmp_path / "run", ranks=1024, epochs=2))
    assert len(page.encode()) < 1_000_000
    assert ">1008-1023<" in page


def test_charts_by_class_degree_and_part_show_test_beside_validation(tmp_path):
    runs, _ = read_runs([make_run(tmp_path / "run")])
    figures = {each.name: each for section in run_sections(runs) for each in section.figures}
    for name in ("scores-by-class", "scores-by-degree", "scores-by-part"):
        assert [split for split, _ in figures[name].stacks] == ["val", "test"]
    assert {"confusion", "confusion-test"} <= figures.keys()
    found = runs[0].details["test"]["classes"]
    right, wrongly, missed = (np.array(found[name]) for name in ("right", "wrongly", "missed"))
    assert figures["scores-by-class"].stacks[1][1] == pytest.approx(2 * right / (2 * right + wrongly + missed))


def test_runs_are_compared(tmp_path):
    first = make_run(tmp_path / "a", strategy="pull", seconds=4.0, epochs=8)
    second = make_run(tmp_path / "b", epochs=8, **{"train.lr": 0.01})
    page = page_of(first, second)
    assert re.search(r"<td>strategy.name</td><td[^>]*>pull</td><td[^>]*>leap</td>", page)
    assert re.search(r"<td>train.lr</td><td[^>]*>0.003</td><td[^>]*>0.01</td>", page)
    assert re.search(r"2\.\d\d \(1\.\d\d to 2\.\d\d\)", page)
    assert "train.batch_size</td>" not in page


def test_names_and_messages_from_files_stay_text(tmp_path):
    path = make_run(tmp_path / "<img src=x onerror=alert(1)>", finished=False)
    (path / "summary.json").write_text(
        json.dumps({"schema": 2, "status": "failed", "why": "<script>alert(2)</script>"})
    )
    (path / "log.txt").write_text("2026-01-01 WARNING warning: <b>odd</b>\n")
    page = page_of(path)
    assert "<img" not in page
    assert "<script" not in page
    assert "&lt;b&gt;odd&lt;/b&gt;" in page


def test_records_that_do_not_fit_together_are_one_sentence(tmp_path, capsys):
    path = make_run(tmp_path / "run")
    text = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(text.replace('"each": 1', '"each": 0'))
    assert main(["report", str(path), "-o", str(tmp_path / "report.html")]) != 0
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_the_command_writes_in_place_of_reports_alone(tmp_path, capsys):
    path, out = make_run(tmp_path / "run"), tmp_path / "report.html"
    assert main(["report", str(path), "-o", str(out)]) == 0
    first = out.read_bytes()
    assert main(["report", str(path), "-o", str(out)]) == 0
    assert out.read_bytes() == first
    deeper = tmp_path / "a" / "b" / "report.html"
    assert main(["report", str(path), "-o", str(deeper)]) == 0
    assert deeper.read_bytes() == first
    out.write_text("my thesis")
    assert main(["report", str(path), "-o", str(out)]) != 0
    assert "is not a report" in capsys.readouterr().err
    assert out.read_text() == "my thesis"
    assert main(["report", str(tmp_path / "nothing")]) != 0
    assert "is not a run folder" in capsys.readouterr().err


def test_the_command_takes_what_compare_takes(tmp_path, capsys):
    """A folder of runs, of which one has no record yet: it is left out with a line, as by compare."""
    make_run(tmp_path / "sweep" / "a")
    make_run(tmp_path / "sweep" / "b", finished=False)
    (make_run(tmp_path / "sweep" / "c") / "metrics.jsonl").write_text("")
    assert main(["report", str(tmp_path / "sweep"), "-o", str(tmp_path / "report.html")]) == 0
    assert capsys.readouterr().err.startswith(f"leapmpi: left out: {tmp_path / 'sweep' / 'c'}: ")
    assert "2 runs: a, b" in (tmp_path / "report.html").read_text()
    assert main(["report", str(tmp_path / "sweep" / "c"), "-o", str(tmp_path / "c.html")]) == 4
    assert "metrics.jsonl is still empty" in capsys.readouterr().err


def test_single_figures_are_written_for_papers(tmp_path, capsys):
    path, out = make_run(tmp_path / "run"), tmp_path / "report.html"
    assert main(["report", str(path), "-o", str(out), "--png", "los"]) != 0
    assert "did you mean 'loss'" in capsys.readouterr().err
    pytest.importorskip("matplotlib", reason="figures for papers need the extra 'figures'")
    assert main(["report", str(path), "-o", str(out), "--png", "all", "--pdf", "loss"]) == 0
    written = {each.name for each in tmp_path.glob("report-*")}
    assert {"report-loss.png", "report-loss.pdf", "report-pairs.png", "report-scores-by-class.png"} <= written
    assert (tmp_path / "report-loss.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it(large, tmp_path, scheme):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    (tmp_path / "report.html").write_text(page_of(large), encoding="utf-8")
    blink = "--blink-settings=preferredColorScheme=" + ("0" if scheme == "dark" else "1")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-sync",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1000,3000",
        blink,
    ]
    shot = tmp_path / "page.png"
    page = (tmp_path / "report.html").as_uri()
    subprocess.run([browser, *flags, f"--screenshot={shot}", page], check=True, capture_output=True, timeout=120)
    assert shot.stat().st_size > 20_000
