"""The results of jobs/gpu/check as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NUMBERS = "Time", "Figures"
"""Tables of numbers."""


def sentences(page: dict[str, Any]) -> Iterator[str]:
    """Yield what a reader must know first."""
    if page["stand_in"]:
        yield "No GPU took part: every path ran on the CPU. Ratios and seconds say nothing about a GPU."
    if page["shrunk"]:
        yield page["shrunk"]
    failed = [each for each in page["checks"] if not each["passed"]]
    yield f"{len(page['checks']) - len(failed)} of {len(page['checks'])} checks passed."
    for each in failed:
        yield f"FAILED {each['name']}: {each['detail']}"
    for name in page["missing"]:
        yield f"Not measured: {name}, the goal is {page['goals'][name]}."
    for name in page["below"]:
        yield f"Goal missed: {name} is {page['figures'][name]:.3g}, the goal is {page['goals'][name]}."


def tables(page: dict[str, Any]) -> dict[str, list[list[str]]]:
    """Return the tables of the page by title, with their headings in the first row; empty ones are left out."""
    versions, sizes = page["versions"], page["sizes"]
    facts = {"torch": f"{versions['torch']}, CUDA {versions['cuda']}", **page["facts"]}
    facts["graph"] = ", ".join(f"{name} {value}" for name, value in sizes.items())
    goals = page["goals"]
    found = {
        "Time": [
            ["part", "seconds", "at most"],
            *([each, f"{took:.0f}", f"{most:.0f}"] for each, took, most in page["times"]),
        ],
        "Environment": [["", ""], *([name, value] for name, value in facts.items() if name != "cuda_aware")],
        "Checks": [
            ["check", "", ""],
            *([each["name"], "passed" if each["passed"] else "FAILED", each["detail"]] for each in page["checks"]),
        ],
        "Figures": [
            ["figure", "measured", "goal"],
            *([name, f"{value:.3g}", str(goals.get(name, ""))] for name, value in page["figures"].items()),
        ],
        "One iteration": [
            ["operation", "number", "microseconds"],
            *([str(value) for value in row] for row in page["profile"]),
        ],
    }
    return {title: rows for title, rows in found.items() if len(rows) > 1}


def text(page: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [f"# GPU check: {page['ran_on']}", ""]
    for sentence in sentences(page):
        lines += [sentence, ""]
    for title, (head, *rows) in tables(page).items():
        rule = ["---", *("---:" if title in NUMBERS else "---" for _ in head[1:])]
        lines += [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in (head, rule, *rows)), ""]
    return "\n".join(lines)


def html(page: dict[str, Any]) -> str:
    """Return the results as a page, one file by itself."""
    from leapmpi.report.markup import bullets, element, facts, table
    from leapmpi.report.page import Section
    from leapmpi.report.page import page as whole

    passed = all(each["passed"] for each in page["checks"])
    light = "bad" if not passed else "fair" if page["below"] else "good"
    lead = element("div", bullets(sentences(page)), class_=f"verdict {light}")
    sections = []
    for title, rows in tables(page).items():
        pairs = [(name, value) for name, value in rows[1:]] if title == "Environment" else []
        body = facts(pairs) if pairs else table(rows, text_columns=3 if title == "Checks" else 1)
        sections.append(Section(title, [body]))
    return whole(f"GPU check: {page['ran_on']}", lead, sections)
