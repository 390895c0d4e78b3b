"""Sections of a page, from records of runs to text, tables and figures, and the pages made of them.

In: `RunData` (run_data.py), health of a dataset, a forecast. Out: `Section`s and pages. A section with nothing to show
says what is not recorded.
"""
