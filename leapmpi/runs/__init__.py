"""Run folder: files written while a model trains, and their readers.

In: configs, records, summaries, weights and checkpoint states, as plain values and NumPy arrays. Out: the files listed
in `file_names`, `Run`, which reads them, and their figures as text tables.
"""
