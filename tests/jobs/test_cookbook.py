"""jobs/COOKBOOK.md: every recipe runs as it stands, in order, on 80 columns and with nothing set for root.

A shell reads each block, and runs all but leapmpi's own programs on one rank: these run in this process, since each
would take seconds to start.
"""

import re

import pytest

from data_prep.cli import main as prep
from leapmpi.cli.main import main
from tests.support.launch import PROJECT, bare_environment, run

PAGE = (PROJECT / "jobs/COOKBOOK.md").read_text()
RECIPES = re.findall(r"^## (\d+)\. ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
LEFT = {
    "1": "mine.h5", "2": "data.html", "4": "runs/sage/weights-best.h5", "6": "report.html", "7": "runs/widths/model-01",
    "8": "runs/own/summary.json", "9": "runs/links/summary.json", "10": "classes.npy",
    "12": "runs/learned/summary.json", "13": "things-predicted.csv", "14": "grown.csv", "15": "partners.csv",
}  # fmt: skip
"""What some recipes leave behind."""
PROGRAMS = {"leapmpi": main, "leapmpi-prep": prep}
NOTED = "".join(f"{name}() {{ printf '%s\\0' {name} \"$@\" $'\\n' >> \"$NOTES\"; }}\n" for name in PROGRAMS)
"""The start of a script that notes these programs and their words in the file $NOTES in place of running them."""


@pytest.mark.long(15)
@pytest.mark.timeout(300)
def test_every_recipe_runs(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "jobs").symlink_to(PROJECT / "jobs")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    assert [number for number, _, _ in RECIPES] == [str(number) for number in range(1, 17)]
    for number, title, body in RECIPES:
        commands = "\n".join(re.findall(r"```sh\n(.*?)```", body, flags=re.DOTALL))
        assert commands, title
        notes = tmp_path / f"notes-{number}"
        job = run(["bash", "-euc", NOTED + commands], 120, bare_environment(tmp_path) | {"NOTES": str(notes)}, folder)
        assert job.returncode == 0, f"{number}. {title}\n{job.stdout}\n{job.stderr}"
        assert "Traceback" not in job.stderr
        for line in notes.read_text().split("\n\0")[:-1] if notes.exists() else ():
            program, *words = line.removesuffix("\0").split("\0")
            code = PROGRAMS[program](words)
            printed = capsys.readouterr()
            assert code == 0, f"{number}. {title}: {words}\n{printed.out}\n{printed.err}"
        if number in LEFT:
            assert (folder / LEFT[number]).exists(), title
    assert (folder / "things-predicted.csv").read_text().startswith("vertex,class\nbook-0,")
    assert len((folder / "grown.csv").read_text().splitlines()) == 1 + 2100
