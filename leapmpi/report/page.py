"""Assembly of a page: sections and figures in one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from urllib.parse import quote

from leapmpi.errors import DataError
from leapmpi.report.charts import chart, legend, svg_file
from leapmpi.report.colours import DARK, LIGHT
from leapmpi.report.drawing import NARROW, WIDE
from leapmpi.report.figures import Figure
from leapmpi.report.markup import Markup, details, element, joined, table
from leapmpi.system.atomic_files import check_place, explain, written_aside
from leapmpi.version import VERSION

_MADE_BY = "<!DOCTYPE html>\n<!-- leapmpi report -->"
"""First lines of every report. Files that start otherwise are never overwritten."""


@dataclass(frozen=True)
class Section:
    """Part of a page: markup, then figures."""

    title: str
    body: Sequence[Markup] = ()
    figures: Sequence[Figure] = field(default=())
    after: Sequence[Markup] = ()
    """Markup below the figures."""

    @property
    def anchor(self) -> str:
        """Name of the section in links within the page."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def page(title: str, lead: Markup, sections: Sequence[Section]) -> str:
    """Return the whole page; equal input gives equal text."""
    links = joined(element("a", each.title, href=f"#{each.anchor}") for each in sections) if len(sections) > 1 else None
    made = element("footer", f"Made by leapmpi {VERSION}. Every figure has its numbers in a table below it.")
    body = [element("h1", title), lead, element("nav", links) if links else None, *map(_section, sections), made]
    shell = Template(_SHELL).substitute(title=element("title", title), style=_STYLE, body=joined(body))
    return f"{_MADE_BY}\n{shell}"


def write_page(path: Path, text: str) -> None:
    """Write the page `text` to `path` atomically, replacing an existing report.

    Raises DataError if `path` is a folder or another file, or cannot be written.
    """
    make_folder(path.absolute().parent)
    check_place(path, overwrite=True)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give the name of a file, such as -o {path / 'report.html'}")
    if path.exists():
        # Replace reports only: never destroy a file of another origin.
        with path.open("rb") as file:
            if file.read(len(_MADE_BY)).decode("utf-8", "replace") != _MADE_BY:
                raise DataError(f"{path} exists already and is not a report; choose another name")
    with written_aside(path, overwrite=True) as aside:
        aside.write_text(text, encoding="utf-8")


def make_folder(folder: Path) -> None:
    """Make `folder` and those above it. Raises DataError or ResourceError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain(error, folder) from None


def figures_of(sections: Iterable[Section]) -> dict[str, Figure]:
    """Return all figures of a page by name."""
    return {figure.name: figure for section in sections for figure in section.figures}


def figure_page(figure: Figure) -> str:
    """Return a page of one figure."""
    return Template(_SHELL).substitute(title=element("title", figure.title), style=_STYLE, body=drawn(figure))


def drawn(figure: Figure) -> Markup:
    """Return the picture of a figure for wide and narrow screens, with links to its files and its table."""
    pictures = [element("div", chart(figure, width), class_=name) for width, name in ((WIDE, "desk"), (NARROW, "hand"))]
    links = [
        element("a", kind.upper(), download=f"{figure.name}.{kind}", href=_data_uri(mime, text))
        for kind, mime, text in (("svg", "image/svg+xml", _standalone(figure)), ("csv", "text/csv", figure.csv()))
    ]
    name = element("small", f"--png {figure.name} ", *links)
    caption = element("figcaption", figure.title, " ", name)
    return element("figure", caption, legend(figure), *pictures, details("Numbers", table(figure.table())))


def _standalone(figure: Figure) -> str:
    """Return the picture of a figure as a file: SVG on a light ground, with the style rules that it uses."""
    picture = svg_file(figure, _STYLE_HERE)
    rules = [rule for name, rule in _CLASSES.items() if re.search(rf'[" ]{name}"', picture)]
    style = Template(f"{_SVG_STYLE}{''.join(rules)}".replace("var(--", "${").replace(")", "}"))
    named = _LIGHT_BASE | {f"c{number}": each for number, each in enumerate(LIGHT)}
    # Editors of drawings know no variables.
    return picture.replace(_STYLE_HERE, style.substitute(named))


def _data_uri(mime: str, text: str) -> str:
    return f"data:{mime};charset=utf-8,{quote(text, safe=_UNQUOTED)}"


_STYLE_HERE = "/*style*/"

_UNQUOTED = " /=;,()!*+@?[]{}|"
"""Characters that need no escape within a link of a page."""


def _section(section: Section) -> Markup:
    pictures = map(drawn, section.figures)
    return element("section", element("h2", section.title), *section.body, *pictures, *section.after, id=section.anchor)


_SHELL = """<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
$title
<style>
$style</style>
</head>
<body>
$body
</body>
</html>
"""

_LIGHT_BASE = {
    **{"page": "#ffffff", "text": "#1b1f24", "faint": "#59636e", "line": "#d1d9e0", "box": "#f6f8fa"},
    **{"good": "#1a7f37", "fair": "#9a6700", "bad": "#cf222e", "heat": "#0b5cad", "on": "#ffffff", "link": "#0b5cad"},
}
_DARK_BASE = {
    **{"page": "#0d1117", "text": "#e6edf3", "faint": "#9198a1", "line": "#3d444d", "box": "#161b22"},
    **{"good": "#3fb950", "fair": "#d29922", "bad": "#f85149", "heat": "#58a6ff", "on": "#0d1117", "link": "#58a6ff"},
}


def _variables(base: dict[str, str], colours: Sequence[str]) -> str:
    """Return the style rule that names all colours."""
    named = {**base, **{f"c{number}": each for number, each in enumerate(colours)}}
    return ":root { " + " ".join(f"--{name}: {value};" for name, value in named.items()) + " }"


_SVG_STYLE = """svg text { fill: var(--text); font-size: 12px; font-family: system-ui, sans-serif; }
svg text.small { font-size: 10px; } svg text.on { font-size: 10px; fill: var(--on); }
.grid { stroke: var(--line); fill: none; } .axis { stroke: var(--faint); fill: none; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.h { fill: none; stroke: var(--heat); } .page { fill: var(--page); }
"""
_CLASSES = {
    f"c{n}": f"svg .c{n} {{ fill: var(--c{n}); }} svg .line.c{n} {{ fill: none; stroke: var(--c{n}); }}\n"
    for n in range(len(LIGHT))
} | {f"h{shade}": f".h{shade} {{ stroke-opacity: {shade / 8:g}; }}\n" for shade in range(1, 9)}
"""Style rules of colours and shades by class."""

_STYLE = f"""{_variables(_LIGHT_BASE, LIGHT)}
@media (prefers-color-scheme: dark) {{ {_variables(_DARK_BASE, DARK)} }}
{_SVG_STYLE}{"".join(_CLASSES.values())}"""
_STYLE += """body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 60rem;
  margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0; }
a { color: var(--link); }
.verdict { border-left: .4rem solid; padding: .5rem 1rem; margin: .5rem 0; background: var(--box); }
.verdict p { margin: .25rem 0; }
.good { border-color: var(--good); } .fair { border-color: var(--fair); } .bad { border-color: var(--bad); }
.light { font-weight: 600; }
.good > p > .light { color: var(--good); } .fair > p > .light { color: var(--fair); }
.bad > p > .light { color: var(--bad); } .verdict ul { margin: 0; padding-left: 1.2rem; }
code { white-space: nowrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .5rem 0;
  overflow-wrap: normal; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
.n { text-align: right; } td.n { white-space: nowrap; }
.facts th { font-weight: 400; color: var(--faint); white-space: nowrap; }
.facts td { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; }
figcaption small, footer, .note { color: var(--faint); font-weight: 400; }
figcaption small { white-space: nowrap; }
figcaption small a { margin-left: .5em; }
figure svg text { stroke: var(--page); stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
figure svg text.small, figure svg text.on { stroke: none; }
summary { cursor: pointer; color: var(--faint); }
pre { overflow-x: auto; overflow-wrap: normal; }
footer { margin-top: 3rem; font-size: .85rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; margin: .25rem 0; font-size: .85rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
.legend i.dashed { height: 0; width: 1.2em; border-top: 2px dashed; vertical-align: .25em; }
svg { display: block; width: 100%; height: auto; }
.desk { max-width: 60rem; } .hand { max-width: 34rem; display: none; }
@media (max-width: 40rem) { .desk { display: none; } .hand { display: block; } }
@media (max-width: 40rem) { th:first-child, td:first-child { min-width: 7rem; } }
@media (max-width: 40rem) { .facts th { white-space: normal; min-width: 6rem; } }
"""
_STYLE += "".join(
    f".legend .c{n} {{ background: var(--c{n}); border-color: var(--c{n}); }}\n" for n in range(len(LIGHT))
)
