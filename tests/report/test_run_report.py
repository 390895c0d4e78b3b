"""The page about runs: one file, small, the same for the same input, whatever version wrote the folder."""

import csv
import html
import json
import re
import urllib.parse
from xml.etree import ElementTree

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.report.charts import agreeing, chart
from leapmpi.report.dataset_health import health
from leapmpi.report.drawing import label
from leapmpi.report.markup import element
from leapmpi.report.page import figures_of
from leapmpi.report.run_data import read_runs
from leapmpi.report.sections import run_report
from leapmpi.report.sections.run_report import dataset_of, dataset_page, run_page, run_sections
from tests.support.browser import cut_texts, looked_at, overlapping_texts
from tests.support.made_run import make_run
from tests.support.typed_graphs import typed_graph


def page_of(*folders, **further):
    runs, _ = read_runs(folders)
    return run_page(runs, run_sections(runs, **further))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("large") / "run", ranks=64, epochs=10, iterations=1000)


def test_a_large_run_fits_in_a_small_file_that_needs_nothing_else(large):
    page = page_of(large)
    assert len(page.encode()) < 1_000_000
    assert not re.search(r"(src|href)=\"(?!#|data:)|url\(|@import|<script|https?://", page)
    assert page.count("<figure>") == page.count("<summary>Numbers</summary>") > 10
    assert page == page_of(large)


def test_all_that_is_recorded_is_shown(large):
    page = page_of(large)
    for anchor in ("learning", "time", "traffic", "plan-beside-measured", "balance-and-memory",
                   "scores-of-the-best-epoch", "restarts-and-warnings", "dataset", "provenance"):  # fmt: skip
        assert f'id="{anchor}"' in page
    for name in ("batch-loss", "scores-over-seconds", "phases-by-rank", "pairs", "memory", "confusion",
                 "scores-by-class", "scores-by-degree", "scores-by-part"):  # fmt: skip
        assert f"--png {name} <" in page
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
    assert "nothing does not exist" in capsys.readouterr().err


def test_the_command_takes_what_compare_takes(tmp_path, capsys):
    """A folder of runs, of which one has no record yet: it is left out with a line, as by compare."""
    make_run(tmp_path / "sweep" / "a")
    make_run(tmp_path / "sweep" / "b", finished=False)
    (make_run(tmp_path / "sweep" / "c") / "metrics.jsonl").write_text("")
    assert main(["report", str(tmp_path / "sweep"), "-o", str(tmp_path / "report.html")]) == 0
    assert capsys.readouterr().err.startswith(f"leapmpi: left out: {tmp_path / 'sweep' / 'c'}: ")
    assert "2 runs: a (sage on data, 4 ranks), b (sage on data, 4 ranks)" in (tmp_path / "report.html").read_text()
    assert main(["report", str(tmp_path / "sweep" / "c"), "-o", str(tmp_path / "c.html")]) == 4
    assert "metrics.jsonl is still empty" in capsys.readouterr().err


def test_single_figures_are_written_for_papers(tmp_path, capsys):
    path, out = make_run(tmp_path / "run"), tmp_path / "report.html"
    assert main(["report", str(path), "-o", str(out), "--png", "los"]) != 0
    assert "did you mean 'loss'" in capsys.readouterr().err
    pytest.importorskip("matplotlib", reason="figures for papers need the extra 'figures'")
    assert main(["report", str(path), "-o", str(out), "--png", "all", "--pdf", "loss", "--svg", "loss"]) == 0
    written = {each.name for each in tmp_path.glob("report-*")}
    assert {"report-loss.png", "report-loss.pdf", "report-pairs.png", "report-scores-by-class.png"} <= written
    assert (tmp_path / "report-loss.pdf").read_bytes().startswith(b"%PDF")
    first = (tmp_path / "report-loss.svg").read_bytes()
    texts = [each.text for each in ElementTree.fromstring(first).iter("{http://www.w3.org/2000/svg}text")]
    assert {"epoch", "loss", "Mean loss of an epoch"} <= set(texts)
    assert main(["report", str(path), "-o", str(out), "--svg", "loss"]) == 0
    assert (tmp_path / "report-loss.svg").read_bytes() == first


def downloads(page):
    """The files behind the links of a page, by name."""
    found = re.findall(r'<a download="([^"]+)" href="data:[^,]+,([^"]*)"', page)
    return {name: urllib.parse.unquote(html.unescape(text)) for name, text in found}


def test_each_figure_can_be_taken_away_as_svg_and_csv(tmp_path):
    runs, _ = read_runs([make_run(tmp_path / "run", epochs=4)])
    sections = run_sections(runs)
    figures, files = figures_of(sections), downloads(run_page(runs, sections))
    assert set(files) == {f"{name}.{kind}" for name in figures for kind in ("svg", "csv")}
    for name in figures:
        picture = ElementTree.fromstring(files[f"{name}.svg"])
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in files[f"{name}.svg"]
    rows = list(csv.reader(files["loss.csv"].splitlines()))
    assert rows[0] == ["epoch", runs[0].label]
    assert [float(row[1]) for row in rows[1:]] == [each["loss"] for each in runs[0].epochs]
    rows = list(csv.reader(files["bytes.csv"].splitlines()))
    assert dict(zip(*rows, strict=True))["features"] == str(2 << 30)


def test_a_name_has_one_colour_on_all_charts(tmp_path):
    page = page_of(make_run(tmp_path / "a", ranks=3), make_run(tmp_path / "b", ranks=3, strategy="pull"))
    entries = re.findall(r'<i class="(c\d+)"></i>([^<]+)<', page)
    for name in ("compute", "gather", "sample", "exchange", "features", "gradients", "ids", "local", "remote", "other"):
        assert len({colour for colour, entry in entries if entry == name}) == 1, name
    # Within a chart no two entries share a colour.
    for each in re.findall(r'<p class="legend">.*?</p>', page):
        colours = re.findall(r'class="(c\d+(?: dashed)?)"', each)
        assert len(colours) == len(set(colours))


def test_runs_that_agree_are_both_seen(tmp_path):
    """The same losses, at other seconds."""
    folders = make_run(tmp_path / "a"), make_run(tmp_path / "b", seconds=4.0)
    runs, _ = read_runs(folders)
    figures = figures_of(run_sections(runs))
    assert agreeing(figures["loss"].lines) == [(0, 2), (1, 2)]
    assert agreeing(figures["scores-over-seconds"].lines[:2]) == [(0, 1), (0, 1)]
    lines = re.findall(r'<path [^>]*class="line c\d"[^>]*>', chart(figures["loss"]))
    assert [re.findall(r'dash(?:array|offset)="([^"]+)"', line) for line in lines] == [["7 7"], ["7 7", "-7"]]


def test_the_constant_baseline_is_a_dashed_line(tmp_path):
    runs, _ = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b")])
    figure = figures_of(run_sections(runs))["scores"]
    (baseline,) = [line for line in figure.lines if line.reference]
    assert baseline.label == "most frequent class (val 0.200)"
    assert set(baseline.y) == {0.2}
    assert 'class="line c13" stroke-dasharray="5 4"' in chart(figure)


def test_runs_are_named_with_model_data_and_ranks(tmp_path):
    page = page_of(make_run(tmp_path / "first", ranks=4, data="graphs/cora"))
    assert "<h1>Run first (sage on cora, 4 ranks)</h1>" in page


def test_a_run_that_knows_its_dataset_does_not_ask_for_it(small_data, tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", data=str(small_data), finished=False)
    runs, _ = read_runs([run])
    found, names = dataset_of(runs)
    assert found["vertices"] == 240
    page = run_page(runs, run_sections(runs, found, names=names))
    assert "Not examined" not in page
    # One that is too large is examined by the command that the page gives.
    monkeypatch.setattr(run_report, "_MOST_EDGES", 10)
    assert dataset_of(runs) == (None, ())
    page = html.unescape(page_of(run))
    assert f"Not examined: leapmpi report {run} <code>--data</code> {small_data} does so." in page
    gone, _ = read_runs([make_run(tmp_path / "other", data=str(tmp_path / "gone"))])
    assert dataset_of(gone) == (None, ())


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two runs with long names, whose labels have no room beside bars."""
    folder = tmp_path_factory.mktemp("compared")
    runs = [
        make_run(folder / f"a-long-name-of-a-run-{name}", strategy=name, seconds=seconds, epochs=8, data="a-dataset")
        for name, seconds in (("pull", 123.0), ("leap", 0.004))
    ]
    return page_of(*runs)


@pytest.fixture(scope="module")
def pages(large, compared, finished_run):
    """Pages by name: a large run, two runs, a real one with its dataset, a typed dataset."""
    runs, _ = read_runs([finished_run.path])
    found, names = dataset_of(runs)
    real = run_page(runs, run_sections(runs, found, names=names))
    typed, _ = dataset_page("typed", health(typed_graph(edges=60)))
    return {"large": page_of(large), "two": compared, "real": real, "typed": typed}


@pytest.mark.parametrize(
    ("which", "width", "dark"),
    [
        *(("large", 1280, False), ("large", 400, False), ("large", 400, True)),
        *(("two", 1280, True), ("two", 400, False), ("real", 1280, True), ("real", 400, True)),
        *(("typed", 1280, False), ("typed", 400, False)),
    ],
)
def test_a_browser_shows_all_texts_whole_and_apart(pages, tmp_path, which, width, dark):
    """In a real browser: every text is inside its drawing or the page, and none overlaps another."""
    found = looked_at(pages[which], tmp_path, width, dark)
    assert found["scrolled"] <= width
    assert len({each["drawing"] for each in found["texts"]}) > (3 if which == "typed" else 10)
    assert cut_texts(found, width) == []
    assert overlapping_texts(found) == []
    assert min(each["size"] for each in found["texts"]) > 9
    assert found["picture"].stat().st_size > 20_000


def test_a_browser_shows_what_is_cut_and_what_overlaps(tmp_path):
    """The check itself: one text beyond a drawing, and two in one place."""
    texts = [label(330, 20, "beyond the edge", "start"), label(100, 50, "one text"), label(110, 52, "another")]
    drawing = element("svg", *texts, viewBox="0 0 340 100", aria_label="a", width="340")
    page = f"<!DOCTYPE html><body style='margin:0'>{drawing}"
    found = looked_at(page, tmp_path, 400, dark=False)
    assert cut_texts(found, 400) == ["a: beyond the edge"]
    assert overlapping_texts(found) == ["a: one text / a: another".replace(" / a: ", " / ")]
