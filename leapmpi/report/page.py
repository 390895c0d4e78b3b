"""Assembly of a page: sections and figures in one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from leapmpi.errors import DataError
from leapmpi.report.charts import bar_chart, heat_map, line_chart
from leapmpi.report.figures import BarFigure, Figure, HeatFigure, LineFigure
from leapmpi.report.markup import Markup, details, element, joined, table
from leapmpi.system.atomic_files import explain, written_aside
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
    """Return the picture of a figure with its table."""
    picture = Markup()
    if isinstance(figure, LineFigure):
        picture = line_chart(figure)
    elif isinstance(figure, BarFigure):
        picture = bar_chart(figure)
    elif isinstance(figure, HeatFigure):
        picture = heat_map(figure)
    name = element("small", f" --png {figure.name}")
    caption = element("figcaption", figure.title, name)
    return element("figure", caption, element("div", picture, class_="wide"), details("Numbers", table(figure.table())))


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

_STYLE = """:root {
  --page: #ffffff; --text: #1b1f24; --faint: #59636e; --line: #d1d9e0; --box: #f6f8fa;
  --good: #1a7f37; --fair: #9a6700; --bad: #cf222e; --heat: #0b5cad; --on: #ffffff;
  --c0: #1f6feb; --c1: #d9730d; --c2: #1a7f37; --c3: #8250df;
  --c4: #cf222e; --c5: #0a8a8a; --c6: #9a6700; --c7: #6e7781;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --box: #161b22;
    --good: #3fb950; --fair: #d29922; --bad: #f85149; --heat: #58a6ff; --on: #0d1117;
    --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff;
    --c4: #ff7b72; --c5: #39c5cf; --c6: #e3b341; --c7: #9198a1;
  }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 60rem;
  margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0; }
a { color: var(--c0); }
.verdict { border-left: .4rem solid; padding: .5rem 1rem; margin: .5rem 0; background: var(--box); }
.verdict p { margin: .25rem 0; }
.good { border-color: var(--good); } .fair { border-color: var(--fair); } .bad { border-color: var(--bad); }
.light { font-weight: 600; }
.good > p > .light { color: var(--good); } .fair > p > .light { color: var(--fair); }
.bad > p > .light { color: var(--bad); } .verdict ul { margin: 0; }
code { white-space: nowrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
.n { text-align: right; white-space: nowrap; }
.facts th { font-weight: 400; color: var(--faint); white-space: nowrap; }
.facts td { overflow-wrap: anywhere; }
figure { margin: 1rem 0; }
figcaption { font-weight: 600; }
figcaption small, footer, .note { color: var(--faint); font-weight: 400; }
summary { cursor: pointer; color: var(--faint); }
footer { margin-top: 3rem; font-size: .85rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; margin: .25rem 0; font-size: .85rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
svg { display: block; width: 100%; min-width: 34rem; max-width: 60rem; height: auto; }
svg text { fill: var(--text); font-size: 12px; }
svg text.small { font-size: 10px; } svg text.on { font-size: 10px; fill: var(--on); }
.grid { stroke: var(--line); fill: none; } .axis { stroke: var(--faint); fill: none; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.h { fill: var(--heat); }
"""
_STYLE += "".join(
    f".legend .c{n} {{ background: var(--c{n}); }} svg .c{n} {{ fill: var(--c{n}); }}"
    f" svg .line.c{n} {{ fill: none; stroke: var(--c{n}); }}\n"
    for n in range(8)
)
_STYLE += "".join(f".h{shade} {{ fill-opacity: {shade / 8:g}; }}\n" for shade in range(1, 9))
