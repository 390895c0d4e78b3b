"""Pages about runs and about a dataset: the choice and order of their sections."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import LeapmpiError, RunFolderError
from leapmpi.report.dataset_health import class_names, health
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

_MOST_EDGES = 5_000_000
"""Largest dataset that a page examines without --data: a second or two."""


def dataset_of(runs: Sequence[RunData]) -> tuple[Mapping[str, Any] | None, Sequence[str]]:
    """Return the health of the dataset of all `runs` and the names of its classes, if it is there, and small.

    (None, ()) otherwise; a page says then which command examines it.
    """
    folders = {run.config.data for run in runs if run.config}
    try:
        (folder,) = folders
        dataset = open_dataset(folder, typed=True)
        known = {run.ended.get("graph_uuid", dataset.graph_uuid) for run in runs} == {dataset.graph_uuid}
        return (health(dataset), class_names(dataset)) if known and dataset.edges <= _MOST_EDGES else (None, ())
    except (LeapmpiError, ValueError):
        return None, ()


def run_sections(
    runs: Sequence[RunData],
    found: Mapping[str, Any] | None = None,
    forecasts: Mapping[str, dict[str, Any]] | None = None,
    names: Sequence[str] = (),
) -> list[Section]:
    """Return the sections of a page about `runs`.

    `found` is the health of their dataset, `forecasts` those of `leapmpi plan` by run label, `names` those of classes.

    Raises RunFolderError for inconsistent records.
    """
    try:
        return _sections(runs, found, forecasts or {}, names)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        where = ", ".join(str(run.run.path) for run in runs)
        raise RunFolderError(f"{where}: a record is damaged ({error!r}); run it again") from None


def _sections(
    runs: Sequence[RunData],
    found: Mapping[str, Any] | None,
    predicted: Mapping[str, dict[str, Any]],
    names: Sequence[str],
) -> list[Section]:
    command = _examining(runs)
    return [
        *([comparison.section(runs)] if len(runs) > 1 else []),
        learning.section(runs),
        seconds.section(runs),
        bytes_and_rows.section(runs, predicted),
        plan_and_measured.section(runs, predicted, command),
        plan_and_measured.balance(runs, predicted, found),
        scores.section(runs, names),
        provenance.events(runs),
        dataset.section(found, names, command),
        provenance.section(runs),
    ]


def _examining(runs: Sequence[RunData]) -> str:
    """Return the command that examines the dataset of `runs` and predicts their traffic; '' if it is not known."""
    folders = dict.fromkeys(run.config.data for run in runs if run.config and run.config.data)
    if len(folders) != 1:
        return ""
    return shlex.join(["leapmpi", "report", *(str(run.run.path) for run in runs), "--data", *folders])


def run_page(runs: Sequence[RunData], sections: Sequence[Section]) -> str:
    """Return the page about `runs`: a verdict on each, then the sections."""
    title = f"Run {runs[0].label}" if len(runs) == 1 else f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
    return page(title, joined(box(run, len(runs) > 1) for run in runs), sections)


def dataset_page(name: str, found: Mapping[str, Any], names: Sequence[str] = ()) -> tuple[str, list[Section]]:
    """Return the page about a dataset called `name`, and its sections."""
    findings = dataset.findings(found)
    light = worst([GOOD, *(light for light, _ in findings)])
    size = f"{found['vertices']:,} vertices, {found['edges']:,} edges, {len(found['cut']) or 'no'} parts."
    word = element("span", f"{light.capitalize()}. ", class_="light")
    lead: Markup = element(
        "div",
        element("p", word, size),
        bullets([sentence for _, sentence in findings] or ["No problems found."]),
        class_=f"verdict {light}",
    )
    section = dataset.section(found, names)
    # The verdict box already lists the findings.
    sections = [replace(section, body=section.body[1:])]
    return page(f"Dataset {name}", lead, sections), sections
