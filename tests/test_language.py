"""The English of the code: words, sentence length, and first words of docstrings, in the rooms mended so far."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.launch import PROJECT

ROOMS = ("README.md", "data_prep", "jobs", "leapmpi", "tests/README.md")
"""Rooms, or single files, held to these rules. The list only grows."""

EXCEPT: tuple[str, ...] = ()
"""Files of these rooms that are not yet mended. The list only shrinks."""

PHRASES = re.compile(
    r"\b(of them hidden|home elsewhere|one answer for all|no weighted sum|edges read again|know this machine|"
    r"with 1 ranks|launcher says|% as long)|"
    r"(?<!there )\b(is|are) no (run|graph|dataset|file|number|name|table|text|features|classes)\b",
    re.IGNORECASE,
)
"""Phrases of earlier messages, which messages, pages and comments avoid."""

MOST_WORDS, MOST_MEAN = 30, 17

DIALECT = re.compile(
    r"\b(told|ask(s|ed|ing)? for|lies?|lay|anew|dealt|ha(s|ve) come|at home|go(es)? home|of which|thereof|whosoever)\b",
    re.IGNORECASE,
)

VERBS = frozenset(
    re.findall(
        r"\w+",
        """accept add aggregate agree allocate alternate announce append apply assemble assign attend average
        backpropagate begin break bring build cache call cancel cap change check choose clear cluster collect
        combine compare compile complete compress compute concatenate continue contract convert copy count
        create cut decide declare decode deliver describe digest distribute do double drain draw drop encode end
        ensure enter escape estimate examine exchange exclude expand expect explain export extend feed fetch
        fill finalise find finish fit flatten flush follow forecast forget format gather give group grow halve
        hash import improve include interleave join judge keep leave let limit list load locate log look make
        map mark mask measure merge mix move multiply name normalise note number observe open order pack parse
        partition pass pick place plan point polish predict prefetch prepare print project propagate push put
        queue quote raise rank react read receive recognise record redistribute reduce refine refuse register
        release remove rename renumber repeat replace report request reserve reset restore resume return reverse run
        sample save scale scan scatter schedule score seed select send serve set settle share shift shorten show
        shuffle sink skip sort split spread stack start stop store stream submit subtract suggest sum swap sync
        take test train translate try turn unpack update use verify view wait warn watch weigh wrap write yield
        zero""",
    )
)
"""Verbs with which docstrings of functions begin. Add what is missing, if it is a verb in the imperative."""

RELATIVE = ("what", "which", "that", "how", "where", "who", "whose", "when")


class Docstring(NamedTuple):
    """A docstring, its owner (module, class, function or value) and its place."""

    place: str
    owner: str
    text: str


def files(suffix: str) -> list[Path]:
    """List the files of the mended rooms."""
    found = [path for room in ROOMS for path in _files_of(PROJECT / room, suffix)]
    return [path for path in found if str(path.relative_to(PROJECT)) not in EXCEPT]


def _files_of(room: Path, suffix: str) -> list[Path]:
    if room.is_dir():
        return sorted(room.rglob(f"*{suffix}"))
    return [room] if room.suffix == suffix else []


@cache
def docstrings() -> list[Docstring]:
    """List all docstrings of the mended rooms, of values too."""
    return [each for path in files(".py") for each in _docstrings_of(path)]


def _docstrings_of(path: Path) -> Iterator[Docstring]:
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for position, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    owner = _owner(node) if position == 0 else "value"
                    yield Docstring(f"{path.relative_to(PROJECT)}:{statement.lineno}", owner, text)


def _owner(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
        return "value" if decorators & {"property", "cached_property"} else "function"
    return "class" if isinstance(node, ast.ClassDef) else "module"


def pages() -> list[tuple[str, str]]:
    """List places and texts of the paragraphs, items and table cells of the mended rooms' pages."""
    found = []
    for path in files(".md"):
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for block in re.split(r"\n\s*\n|\n(?=[-|] ?)|\n(?=    )|\n(?=#)", text):
            for cell in block.split(" | ") if block.startswith("|") else [block]:
                if not block.startswith("    "):
                    found.append((str(path.relative_to(PROJECT)), cell.strip("|-# \n")))
    return found


def sentences(text: str) -> list[str]:
    """Split prose into sentences; code in backticks and links count as one word."""
    parts = re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*- ", prose(text))
    return [part for part in parts if re.search(r"[A-Za-z]{2}", part)]


def prose(text: str) -> str:
    """Replace code in backticks and links by one word each."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "code", re.sub(r"``.*?``", "code", text))


def words(sentence: str) -> int:
    """Count the words of a sentence."""
    return len(re.findall(r"[A-Za-z][\w'-]*", sentence))


def comments() -> Iterator[tuple[str, str]]:
    """Yield places and texts of comments."""
    for path in files(".py"):
        source = io.BytesIO(path.read_bytes())
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                yield f"{path.relative_to(PROJECT)}:{token.start[0]}", token.string


def test_no_dialect():
    texts = [(each.place, each.text) for each in docstrings()] + pages() + list(comments())
    found = [f"{place}: {hit[0]!r} in {text[:90]!r}" for place, text in texts if (hit := DIALECT.search(prose(text)))]
    assert not found, "\n".join(found)


def strings() -> Iterator[tuple[str, str]]:
    """Yield places and texts of all strings, pieces of f-strings too."""
    for path in files(".py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}", node.value


def test_phrases_are_those_of_the_field():
    texts = [*pages(), *comments(), *strings()]
    found = [(place, hit[0]) for place, text in texts for hit in PHRASES.finditer(re.sub(r"\s+", " ", text))]
    assert not found


def test_sentences_are_short():
    texts = [(each.place, each.text) for each in docstrings()] + pages()
    long = [f"{place}: {words(each)} words: {each[:90]!r}" for place, text in texts for each in sentences(text)]
    long = [line for line in long if int(re.search(r": (\d+) words", line)[1]) > MOST_WORDS]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("room", ROOMS)
def test_the_mean_sentence_is_short(room):
    texts = [each.text for each in docstrings() if each.place.startswith(room)]
    texts += [text for place, text in pages() if place.startswith(room)]
    counts = [words(each) for text in texts for each in sentences(text)]
    assert sum(counts) / len(counts) <= MOST_MEAN


def test_functions_begin_with_a_verb():
    found = []
    for each in docstrings():
        first = re.match(r"[A-Za-z-]*", each.text.lstrip("`'"))[0].lower()
        if each.owner == "function" and first not in VERBS and not each.text.startswith("transit("):
            found.append(f"{each.place}: {each.text.splitlines()[0]}")
    assert not found, "\n".join(found)


def test_classes_and_values_begin_with_a_noun():
    found = []
    for each in docstrings():
        first = re.match(r"[A-Za-z-]*", each.text)[0].lower()
        if each.owner != "function" and first in RELATIVE:
            found.append(f"{each.place}: {each.text.splitlines()[0]}")
    assert not found, "\n".join(found)


NAMES = re.compile(
    r"(^|_)(told|dealt|dealing|asked|asks|anew|lies|hears?|says?|guilty|come|goes)(_|$)|^(Told|Dealt|Asked)|at_home|goes_on"
)
"""Words that no function, class or parameter bears in its name."""


def test_names_are_plain():
    found = []
    for path in files(".py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                arguments = [] if isinstance(node, ast.ClassDef) else [*node.args.args, *node.args.kwonlyargs]
                names = [node.name, *(each.arg for each in arguments)]
                place = f"{path.relative_to(PROJECT)}:{node.lineno}"
                found += [f"{place}: {name}" for name in names if NAMES.search(name)]
    assert not found, "\n".join(found)
