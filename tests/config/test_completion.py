"""Scripts of completion, asked by the shells themselves where they are installed."""

import shutil
import subprocess

import pytest

from data_prep.cli import COMMANDS as PREPARATION
from leapmpi.cli.main import COMMANDS as TRAINING
from leapmpi.cli.main import main
from leapmpi.config.completion import SHELLS, script

PROGRAMS = {"leapmpi": TRAINING, "leapmpi-prep": PREPARATION}
ASKED = {
    "leapmpi tra": ["train"],
    "leapmpi train --strat": ["--strategy"],
    "leapmpi train --strategy p": ["p3", "pull"],
    "leapmpi train data --dtype b": ["bfloat16"],
    "leapmpi export --to t": ["tensorboard"],
    "leapmpi completion z": ["zsh"],
    "leapmpi-prep part": ["partition"],
    "leapmpi-prep partition --method gi": ["given"],
    "leapmpi-prep partition --bal": ["--balance"],
    "leapmpi train fil": ["file.toml"],
}
"""What is typed, and what is offered."""


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the scripts of all shells, and a file."""
    place = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        text = "".join(script(shell, program, commands) for program, commands in PROGRAMS.items())
        (place / f"script.{shell}").write_text(text)
    (place / "file.toml").touch()
    return place


def answer(folder, *words):
    found = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)
    assert found.stderr == "", found.stderr
    return found.stdout.split()


@needs("bash")
@pytest.mark.parametrize("typed", ASKED)
def test_bash(folder, typed):
    function = f"_{typed.split()[0].replace('-', '_')}"
    words = " ".join(f"'{word}'" for word in typed.split())
    code = (
        f"source script.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); {function}; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    expected = [] if ASKED[typed] == ["file.toml"] else ASKED[typed]  # files are offered by bash itself
    assert answer(folder, "bash", "-c", code) == expected


@needs("bash")
def test_bash_with_an_equals_sign(folder):
    code = (
        "source script.bash; COMP_WORDS=(leapmpi train --strategy = pu); COMP_CWORD=4; _leapmpi; echo ${COMPREPLY[@]}"
    )
    assert answer(folder, "bash", "-c", code) == ["pull"]


@needs("fish")
@pytest.mark.parametrize("typed", ASKED)
def test_fish(folder, typed):
    code = f"source script.fish; complete -C '{typed}'"
    found = subprocess.run(["fish", "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == ASKED[typed], found.stderr


@needs("zsh")
def test_zsh_reads_the_script(folder):
    code = "autoload -U compinit; compinit -u -d dump; source script.zsh; print $_comps[leapmpi] $_comps[leapmpi-prep]"
    assert answer(folder, "zsh", "-f", "-c", code) == ["_leapmpi", "_leapmpi_prep"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(capsys, folder, shell):
    assert main(["completion", shell]) == 0
    assert (folder / f"script.{shell}").read_text().startswith(capsys.readouterr().out)


def test_an_unknown_shell(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
