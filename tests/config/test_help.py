"""--help and --help-all: every setting stands under one heading, the most used ones are shown first."""

import importlib
import re

import pytest

from data_prep.cli import COMMANDS as PREPARATION
from leapmpi.cli.commands import bench, evaluate, plan, submit, sweep, train
from leapmpi.cli.main import ABOUT, COMMANDS
from leapmpi.config.parser import parser_of, usage
from leapmpi.config.sections import GROUPS, fields
from leapmpi.config.setting import Setting, setting

TEN = ["run", "model", "hidden", "sampler", "fanout", "strategy", "epochs", "batch-size", "lr", "device"]
SETTINGS = {each.flag: each for key, each in fields() if key != "data"}


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys, command, module, *arguments):
    """What `leapmpi COMMAND ARGUMENT...` prints before it exits."""
    with pytest.raises(SystemExit) as end:
        parser_of("leapmpi", command, module).parse_strictly(arguments)
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    return text


PROGRAMS = {"leapmpi": COMMANDS, "leapmpi-prep": PREPARATION}


@pytest.mark.parametrize("name", [f"{program} {command}" for program in PROGRAMS for command in PROGRAMS[program]])
def test_help_fits_eighty_columns(capsys, name):
    program, command = name.split()
    module = importlib.import_module(PROGRAMS[program][command])
    with pytest.raises(SystemExit):
        parser_of(program, command, module).parse_strictly(["--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80, max(text.splitlines(), key=len)


def flags_by_heading(text):
    """The flags explained under each heading of a help text."""
    found, heading = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"\S.*:", line):
            heading = found.setdefault(line[:-1], [])
        elif flag := re.match(r"  (?:-h, )?--([\w-]+)", line):
            heading.append(flag[1])
    return found


def test_help_all_shows_every_setting_under_one_heading(capsys):
    found = flags_by_heading(shown(capsys, "train", train, "--help-all"))
    assert [heading for heading in found if heading in GROUPS] == list(GROUPS)
    for flag, each in SETTINGS.items():
        assert [heading for heading, flags in found.items() if flag in flags] == [each.limits["group"]], flag


def test_help_shows_the_ten_most_used_settings_and_lists_the_others(capsys):
    text = shown(capsys, "train", train, "--help")
    explained = [flag for flags in flags_by_heading(text).values() for flag in flags]
    assert [flag for flag in explained if flag in SETTINGS] == TEN
    listed = re.findall(r"--([\w-]+)(?=[,\n])", text.partition("more flags, which --help-all explains:")[2])
    assert sorted(listed) == sorted(SETTINGS.keys() - set(TEN))


def test_choices_that_differ_in_a_number_are_shown_once(capsys):
    text = " ".join(shown(capsys, "train", train, "--help-all").split())
    assert "rmse, roc-auc, auto; hits-K for K 1, 3, 10, 20, 50, 100; map-K, precision-K, recall-K for K 1, 5" in text
    assert "hits-50" not in text
    assert "labor-0, labor-i" in text


def test_every_setting_has_a_metavar(capsys):
    text = shown(capsys, "train", train, "--help-all")
    for flag, each in SETTINGS.items():
        assert each.metavar or each.type is bool
        assert re.search(rf"^  --{flag}{f' {re.escape(each.metavar)}' if each.metavar else ','}( |$)", text, re.M), flag


@pytest.mark.parametrize(("command", "module"), [("bench", bench), ("plan", plan), ("sweep", sweep)])
def test_commands_with_all_settings_show_their_own_flags_first(capsys, command, module):
    found = flags_by_heading(shown(capsys, command, module, "--help"))
    assert list(found)[:3] == ["positional arguments", "options", "data and run"]
    assert {"json", "list"} & set(found["options"])
    assert "epochs" in found["training"]
    assert "momentum" not in found["training"]
    assert "momentum" in flags_by_heading(shown(capsys, command, module, "--help-all"))["training"]


def test_commands_with_few_settings_show_them_all(capsys):
    found = flags_by_heading(shown(capsys, "evaluate", evaluate, "--help"))
    assert found["settings that may differ from the run's"][:2] == ["eval-fanout", "eval-limit"]
    found = flags_by_heading(shown(capsys, "submit", submit, "--help"))
    assert found["values that replace those of the profile"][:2] == ["scheduler", "nodes"]


def test_metavars_and_defaults_follow_from_types_and_choices():
    def declared(kind, default, **limits):
        return Setting("a.b", kind, default, setting(default, "", **limits).metadata)

    assert [declared(kind, None).metavar for kind in (int, float, str, tuple[int, ...])] == ["N", "X", "TEXT", "A,B"]
    assert declared(str, "a", choices=("a", "b")).metavar == "a|b"
    assert declared(str, "a" * 40, choices=("a" * 40,)).metavar == "NAME"
    assert [declared(float, 300.0).default_text, declared(tuple[int, ...], (5, 5)).default_text] == ["300", "5,5"]
    assert [declared(bool, False).default_text, declared(int, 0).default_text] == ["", "0"]


def test_choices_of_a_registry_may_be_extended():
    choices = dict(fields())["strategy.remote"].choices()
    assert choices == ("mixed", "partial", "projected", "raw", "sums", "auto")


def test_the_list_of_commands_fits_eighty_columns():
    assert max(map(len, usage("leapmpi", ABOUT, COMMANDS).splitlines())) <= 80
