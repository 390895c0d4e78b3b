"""`leapmpi-prep task-table DATA TABLE ROWS`: new rows of a task table become a file for `leapmpi predict`."""

from __future__ import annotations

import argparse
from pathlib import Path

from data_prep.commands.import_graph import add_code

HELP = "encode new rows of a task table, for leapmpi predict --task-table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the dataset, the table of new rows, and the file for them."""
    parser.add_argument("data", type=Path, metavar="DATA", help="dataset folder, imported from tables")
    parser.add_argument("table", type=Path, metavar="TABLE", help="file of new rows: Parquet or CSV, without labels")
    parser.add_argument("rows", type=Path, metavar="ROWS.h5", help="file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the file")
    add_code(parser)
    most = "most memory to use, such as 4G; by default half of what is available"
    parser.add_argument("--max-mem", metavar="SIZE", help=most)


def run(arguments: argparse.Namespace) -> int:
    """Read, encode and write the rows; print what was found. Raises LeapmpiError for the first fault."""
    from data_prep.workspace import memory_budget, workspace_beside
    from leapmpi.dataset.partitioned import open_dataset
    from leapmpi.dataset.task_rows import write_task_rows
    from leapmpi.errors import ConfigError, DataError
    from leapmpi.system.atomic_files import check_place

    try:
        from data_prep.database.new_rows import new_rows
    except ImportError as error:
        raise ConfigError(
            f"tables are read by pyarrow, which is missing ({error}); pip install 'leapmpi[tables]'"
        ) from None
    # Refuse what can be refused before the work.
    if not arguments.table.is_file():
        raise DataError(f"{arguments.table} is not a file; name a file of Parquet or CSV with new rows")
    check_place(arguments.rows, arguments.overwrite)
    dataset = open_dataset(arguments.data, typed=True)
    with workspace_beside(arguments.rows, memory_budget(arguments.max_mem)) as workspace:
        found = new_rows(dataset, arguments.table, workspace, arguments.code or ())
        write_task_rows(arguments.rows, dataset, found.arrays, found.texts, overwrite=arguments.overwrite)
    print(f"{found.count:,} rows by {', '.join(found.texts.columns)}: {arguments.rows}")
    print("\n".join(f"  note: {note}" for note in found.notes))
    return 0
