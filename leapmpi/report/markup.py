"""HTML and SVG as text that is escaped unless it is markup already: nothing from a file can become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any


class Markup(str):
    """Text that is HTML or SVG, and goes into a page as it is."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """An element of a page. Children that are no Markup are escaped; attributes that are None are left out.

    In names of attributes a trailing `_` is dropped and others stand for `-`.
    """
    names = (name.rstrip("_").replace("_", "-") for name in attributes)
    pairs = zip(names, attributes.values(), strict=True)
    given = "".join(f' {name}="{html.escape(str(value))}"' for name, value in pairs if value is not None)
    return Markup(f"<{tag}{given}>{joined(children)}</{tag}>")


def joined(parts: Iterable[Any]) -> Markup:
    """`parts` one after the other, escaped where they are no Markup; None is left out."""
    return Markup("".join(_escaped(part) for part in parts if part is not None))


def _escaped(part: Any) -> str:
    return part if isinstance(part, Markup) else html.escape(str(part))


def table(rows: Sequence[Sequence[Any]], text_columns: int = 1) -> Markup:
    """A table whose first row holds headings; all columns but the first `text_columns` are aligned to the right.

    It scrolls by itself where the page is narrower.
    """
    head, *body = rows
    align = [None if column < text_columns else "n" for column in range(len(head))]
    cells = [element("th", cell, class_=each) for cell, each in zip(head, align, strict=True)]
    lines = [
        element("tr", *(element("td", cell, class_=each) for cell, each in zip(row, align, strict=True)))
        for row in body
    ]
    whole = element("table", element("thead", element("tr", *cells)), element("tbody", *lines))
    return element("div", whole, class_="wide")


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Names and values, one a line."""
    lines = [element("tr", element("th", name), element("td", value)) for name, value in pairs]
    return element("div", element("table", *lines, class_="facts"), class_="wide")


def bullets(sentences: Iterable[str]) -> Markup:
    """A list of sentences, in which flags are set apart."""
    return element("ul", *(element("li", *_flags_apart(each)) for each in sentences))


def _flags_apart(sentence: str) -> list[Any]:
    """The sentence in pieces: every other one is a flag."""
    pieces = re.split(r"(--[a-z][a-z-]*[a-z])", sentence)
    return [element("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def details(summary: str, *children: Any) -> Markup:
    """What is shown when its `summary` is clicked."""
    return element("details", element("summary", summary), *children)
