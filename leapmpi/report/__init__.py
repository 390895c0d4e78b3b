"""`leapmpi report` and `leapmpi-prep report`: one HTML page about runs and their dataset.

In: run folders, datasets, forecasts as plain values. Out: a page without links to anything outside of itself, equal
bytes for equal input; single figures for papers. charts/ draws figures as SVG, sections/ says what a page holds.
Neither MPI nor torch is loaded.
"""
