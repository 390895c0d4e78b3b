"""Failure handling: when a rank dies, hangs, fails or is to stop, every rank ends, and one message explains it.

In: signals, errors, what ranks were seen to do. Out: one line on standard error, summary.json and stack files in the
run folder, an exit code, and stop requests for the checkpointer; see README.md.
"""
