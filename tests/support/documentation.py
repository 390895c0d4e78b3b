"""The commands of the pages: of blocks (indented, or fenced as sh), and between backquotes in the text."""

import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.launch import PROJECT

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n(?:\n+(?=    ))?)+")
_HERE_DOCUMENT = re.compile(r"<<'(\w+)'\n.*?\n\1$", re.MULTILINE | re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_INLINE = re.compile(r"`((?:leapmpi|leapmpi-prep) [^`]+)`")
_KEYWORDS = ("do", "while", "done")


class Command(NamedTuple):
    """One command of a page: its words, and what a reader is told before: the page's opening, and the paragraph and
    comments at its block."""

    page: str
    words: tuple[str, ...]
    told: str

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> list[str]:
    """All pages of the project but the list of changes, by path."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=PROJECT, capture_output=True, text=True)
    found = listed.stdout.split() if listed.returncode == 0 else map(str, _without_git())
    return sorted({*found} - {"CHANGELOG.md"})


def _without_git() -> Iterator[Path]:
    for path in PROJECT.rglob("*.md"):
        relative = path.relative_to(PROJECT)
        if not any(part.startswith(".") for part in relative.parts):
            yield relative


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The text of each block of commands of a page, and what is told before it."""
    text = (PROJECT / page).read_text()
    opening = text.partition("\n## ")[0]
    fenced = [(found.start(), found[2]) for found in _FENCE.finditer(text) if found[1] == "sh"]
    # Indented lines in fences are not blocks of their own.
    outside = _FENCE.sub(lambda found: re.sub(r"[^\n]", "-", found[0]), text)
    indented = [(found.start(), textwrap.dedent(found[0])) for found in _INDENTED.finditer(outside)]
    for start, block in sorted(fenced + indented):
        yield block, f"{opening}\n{text[:start].rstrip().rpartition(chr(10) * 2)[2]}\n"


def commands(page: str) -> list[Command]:
    """Every command of the blocks of a page, in order; words in brackets, which may be left out, are left out."""
    found = []
    for block, told in blocks(page):
        lines = _HERE_DOCUMENT.sub("", block).replace("\\\n", " ").splitlines()
        found += [Command(page, words, told + block) for line in lines for words in _simple(line)]
    return found


def inline_commands(page: str) -> list[Command]:
    """The commands of both programs between backquotes."""
    text = _FENCE.sub("", (PROJECT / page).read_text())
    return [Command(page, words, "") for found in _INLINE.findall(text) for words in _simple(" ".join(found.split()))]


def _simple(line: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of a line of shell, without redirections, and those in $(...) before them."""
    for inner in _SUBSTITUTION.findall(line):
        yield from _simple(inner)
    words = shlex.shlex(re.sub(r"\[[^]]*\]", "", _SUBSTITUTION.sub("VALUE", line)), posix=True, punctuation_chars=";|>")
    words.whitespace_split = True
    command: list[str] = []
    first = dict(re.findall(r"\bfor (\w+) in (\w+)", line))  # of the values of a loop
    for word in [*words, ";"]:
        word = first.get(word.removeprefix("$"), word) if word.startswith("$") else word
        if word in (";", "|"):
            if command and command[0] != "for":
                yield tuple(command[: command.index(">")] if ">" in command else command)
            command = []
        elif word not in _KEYWORDS or command:
            command.append(word)
