"""The sections of a page, one module each: from the records of runs to text, tables and figures.

In: `RunData` (run_data.py), health of a dataset, a forecast. Out: `Section`s; one that has nothing to show says what is
not recorded.
"""
