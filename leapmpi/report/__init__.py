"""Pages of `leapmpi report` and `leapmpi-prep report`: one HTML file about runs and their dataset.

In: run folders, datasets, forecasts as plain values. Out: a page without external links, and single figures for papers.
Equal input gives equal bytes. Sections build on figures, charts and markup. Neither MPI nor torch is loaded.
"""
