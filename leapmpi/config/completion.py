"""`PROGRAM completion SHELL`: a script by which bash, zsh or fish complete commands, flags and their values.

Made from the parsers of all commands, so that it knows each flag, those that --help leaves out included.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from leapmpi.config.parser import parser_of
from leapmpi.config.sections import fields

HELP = "print a script that completes commands and flags in your shell"
SHELLS = ("bash", "zsh", "fish")
"""The shells that there is a script for."""

_PROGRAM_FLAGS = ("--help", "--version")


class Flag(NamedTuple):
    """A flag: its name, whether a value follows, what that may be (empty: anything, files are offered), its help."""

    name: str
    takes_value: bool
    values: tuple[str, ...]
    help: str


class Words(NamedTuple):
    """Possible continuations of a command: its help, its flags, and the words of its first argument (empty: files)."""

    command: str
    help: str
    flags: tuple[Flag, ...]
    values: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument: the name of the shell."""
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell to complete in")
    parser.epilog = (
        'bash: eval "$(leapmpi completion bash)" in ~/.bashrc; zsh: the same with zsh, after compinit, in ~/.zshrc; '
        "fish: leapmpi completion fish > ~/.config/fish/completions/leapmpi.fish; leapmpi-prep has its own"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script of the program that was called."""
    print(script(arguments.shell, arguments.program, arguments.commands), end="")
    return 0


def offer(action: argparse.Action, values: Iterable[str]) -> None:
    """Let completion offer `values` for the flag of `action`, which takes others too."""
    vars(action)["offered"] = tuple(values)


def script(shell: str, program: str, commands: Mapping[str, str]) -> str:
    """Return the script for `shell`, one of SHELLS; `commands` maps the names of commands to modules."""
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    words = [_words(program, name, module) for name, module in commands.items()]
    return "".join(f"{line}\n" for line in write(program, words))


def _words(program: str, name: str, module: str) -> Words:
    """Collect the words that the parser of the command in `module` knows."""
    command = importlib.import_module(module)
    parser = parser_of(program, name, command)
    # Completion offers every flag, also those that --help hides.
    parser.show_hidden()
    flags: list[Flag] = []
    first: tuple[str, ...] = ()
    for action in parser.actions():
        values = _values(action)
        if not action.option_strings:
            first = first or values
        for flag in action.option_strings:
            if flag.startswith("--"):
                flags.append(Flag(flag, action.nargs != 0, values, _plain(action.help)))
    return Words(name, _plain(command.HELP), tuple(flags), first)


def _values(action: argparse.Action) -> tuple[str, ...]:
    """List the possible values of a flag or argument, where they are words."""
    setting = dict(fields()).get(action.dest)
    if setting is not None:
        return setting.choices()
    return tuple(map(str, action.choices or vars(action).get("offered", ())))


def _plain(help: str | None) -> str:
    """Shorten `help` to one line, without characters that shells interpret."""
    text = (help or "").partition(" (default")[0].replace("%%", "%")
    return "".join(each for each in text if each not in "[]\\'\"`$:\n")


def _bash(program: str, commands: list[Words]) -> Iterator[str]:
    function = f"_{program.replace('-', '_')}"
    names = " ".join([*(each.command for each in commands), *_PROGRAM_FLAGS])
    yield f'# Completion of {program}: eval "$({program} completion bash)"'
    yield f"{function}() {{"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words="
    yield "    # --flag=value is three words to bash."
    yield '    if [[ $current == "=" ]]; then current='
    yield '    elif [[ $previous == "=" ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi'
    yield "    COMPREPLY=()"
    yield "    case $COMP_CWORD:${COMP_WORDS[1]}:$previous:$current in"
    yield f"        1:*) words={shlex.quote(names)} ;;"
    for each in commands:
        for flag in each.flags:
            if flag.values:
                yield f"        *:{each.command}:{flag.name}:*) words={shlex.quote(' '.join(flag.values))} ;;"
        yield f"        *:{each.command}:*:-*) words={shlex.quote(' '.join(flag.name for flag in each.flags))} ;;"
        if each.values:
            yield f"        2:{each.command}:*) words={shlex.quote(' '.join(each.values))} ;;"
    yield "    esac"
    yield "    # Without words, bash offers files."
    yield '    if [[ $words ]]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); fi'
    yield "}"
    yield f"complete -o default -F {function} {program}"


def _zsh(program: str, commands: list[Words]) -> Iterator[str]:
    function = f"_{program.replace('-', '_')}"
    yield f"#compdef {program}"
    yield f'# Completion of {program}: eval "$({program} completion zsh)" after compinit'
    yield f"{function}() {{"
    yield "    if ((CURRENT == 2)); then"
    yield "        local -a commands=("
    yield from (f"            '{each.command}:{each.help}'" for each in commands)
    yield "        )"
    yield f"        _describe command commands; _values flag {' '.join(_PROGRAM_FLAGS)}"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words; ((CURRENT--))"
    yield "    case $command in"
    for each in commands:
        yield f"        {each.command}) _arguments \\"
        for flag in each.flags:
            value = f":value:{f'({chr(32).join(flag.values)})' if flag.values else '_files'}" * flag.takes_value
            # The star: a flag may be given again, and the last one counts.
            yield f"            '*{flag.name}{'=' * flag.takes_value}[{flag.help}]{value}' \\"
        yield f"            '*:file:{f'({chr(32).join(each.values)})' if each.values else '_files'}' ;;"
    yield "    esac"
    yield "}"
    yield f'if [[ $funcstack[1] == {function} ]]; then {function} "$@"; else compdef {function} {program}; fi'


def _fish(program: str, commands: list[Words]) -> Iterator[str]:
    yield f"# Completion of {program}: {program} completion fish > ~/.config/fish/completions/{program}.fish"
    first = "test (count (commandline -opc)) -eq 1"
    for name in _PROGRAM_FLAGS:
        yield f"complete -c {program} -n '{first}' -l {name[2:]}"
    for each in commands:
        yield f"complete -c {program} -n '{first}' -f -a {each.command} -d '{each.help}'"
        inside = f"__fish_seen_subcommand_from {each.command}"
        if each.values:
            yield f"complete -c {program} -n '{inside}' -f -a '{' '.join(each.values)}'"
        for flag in each.flags:
            # -x offers words only; -r -F lets a value be a file.
            value = f" -x -a '{' '.join(flag.values)}'" if flag.values else " -r -F" * flag.takes_value
            yield f"complete -c {program} -n '{inside}' -l {flag.name[2:]}{value} -d '{flag.help}'"
