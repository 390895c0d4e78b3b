"""Pages about runs and about a dataset: the choice and order of their sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leapmpi.errors import RunFolderError
from leapmpi.report.lights import GOOD, worst
from leapmpi.report.markup import Markup, bullets, element, joined
from leapmpi.report.page import Section, page
from leapmpi.report.run_data import RunData
from leapmpi.report.sections import (
    bytes_and_rows,
    comparison,
    dataset,
    learning,
    plan_and_measured,
    provenance,
    scores,
    seconds,
)
from leapmpi.report.sections.verdict import box


def run_sections(
    runs: Sequence[RunData],
    health: Mapping[str, Any] | None = None,
    forecasts: Mapping[str, dict[str, Any]] | None = None,
    class_names: Sequence[str] = (),
) -> list[Section]:
    """Return the sections of a page about `runs`. `forecasts` are those of `leapmpi plan` by run label.

    Raises RunFolderError for inconsistent records.
    """
    try:
        return _sections(runs, health, forecasts or {}, class_names)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        where = ", ".join(str(run.run.path) for run in runs)
        raise RunFolderError(f"{where}: a record is damaged ({error!r}); run it again") from None


def _sections(
    runs: Sequence[RunData],
    health: Mapping[str, Any] | None,
    predicted: Mapping[str, dict[str, Any]],
    class_names: Sequence[str],
) -> list[Section]:
    return [
        *([comparison.section(runs)] if len(runs) > 1 else []),
        learning.section(runs),
        seconds.section(runs),
        bytes_and_rows.section(runs, predicted),
        plan_and_measured.section(runs, predicted),
        plan_and_measured.balance(runs, predicted, health),
        scores.section(runs, class_names),
        provenance.events(runs),
        dataset.section(health, class_names),
        provenance.section(runs),
    ]


def run_page(runs: Sequence[RunData], sections: Sequence[Section]) -> str:
    """Return the page about `runs`: a verdict on each, then the sections."""
    title = f"Run {runs[0].label}" if len(runs) == 1 else f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
    return page(title, joined(box(run, len(runs) > 1) for run in runs), sections)


def dataset_page(name: str, health: Mapping[str, Any], class_names: Sequence[str] = ()) -> tuple[str, list[Section]]:
    """Return the page about a dataset called `name`, and its sections."""
    found = dataset.findings(health)
    light = worst([GOOD, *(light for light, _ in found)])
    size = f"{health['vertices']:,} vertices, {health['edges']:,} edges, {len(health['cut']) or 'no'} parts."
    word = element("span", f"{light.capitalize()}. ", class_="light")
    lead: Markup = element(
        "div",
        element("p", word, size),
        bullets([sentence for _, sentence in found] or ["No problems found."]),
        class_=f"verdict {light}",
    )
    section = dataset.section(health, class_names)
    # The verdict box already lists the findings.
    sections = [replace(section, body=section.body[1:])]
    return page(f"Dataset {name}", lead, sections), sections
