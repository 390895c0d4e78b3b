"""HTML and SVG builders. Text is escaped unless it is Markup, so file contents never become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any


class Markup(str):
    """HTML or SVG text that enters a page unescaped."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """Return an element. Children that are not Markup are escaped; attributes that are None are omitted.

    In attribute names a trailing `_` is dropped and other underscores become `-`.
    """
    names = (name.rstrip("_").replace("_", "-") for name in attributes)
    pairs = zip(names, attributes.values(), strict=True)
    attributes_text = "".join(f' {name}="{html.escape(str(value))}"' for name, value in pairs if value is not None)
    return Markup(f"<{tag}{attributes_text}>{joined(children)}</{tag}>")


def joined(parts: Iterable[Any]) -> Markup:
    """Concatenate `parts`, escaping those that are not Markup; None is skipped."""
    return Markup("".join(_escaped(part) for part in parts if part is not None))


def _escaped(part: Any) -> str:
    return part if isinstance(part, Markup) else html.escape(str(part))


def table(rows: Sequence[Sequence[Any]], text_columns: int = 1, heads: bool = True) -> Markup:
    """Return a table whose first row holds headings; columns after the first `text_columns` are right-aligned.

    Without `heads` the first column, which then says nothing, is left out. The table scrolls by itself where the page
    is narrower.
    """
    if not heads:
        rows, text_columns = [row[1:] for row in rows], text_columns - 1
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
    """Return a table of names and values, one per line."""
    lines = [element("tr", element("th", name), element("td", value)) for name, value in pairs]
    return element("div", element("table", *lines, class_="facts"), class_="wide")


def bullets(sentences: Iterable[str]) -> Markup:
    """Return a list of sentences, with flags set as code."""
    return element("ul", *(element("li", *flags_apart(each)) for each in sentences))


def note(text: str) -> Markup:
    """Return a faint paragraph, with flags set as code."""
    return element("p", *flags_apart(text), class_="note")


def flags_apart(sentence: str) -> list[Any]:
    """Split a sentence into pieces; every second piece is a flag. A number stays on one line with its unit."""
    whole = re.sub(r"(\d) (%|[KMGT]?i?B|s)(?!\w)", "\\1\u00a0\\2", sentence)
    pieces = re.split(r"(--[a-z][a-z-]*[a-z])", whole)
    return [element("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def details(summary: str, *children: Any) -> Markup:
    """Return content that unfolds when its `summary` is clicked."""
    return element("details", element("summary", summary), *children)
