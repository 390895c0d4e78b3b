"""Tables as text: what `leapmpi compare`, `bench` and `plan` print, and the ranks in the log.

In: rows of plain values, as records and summaries hold them. Out: lines of aligned columns.
"""
