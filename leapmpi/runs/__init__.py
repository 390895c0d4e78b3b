"""The run folder: what is written while a model trains, and how it is read again.

In: configs, records, summaries, weights and states of checkpoints, as plain values and NumPy arrays. Out: the files
that `file_names` lists, and `Run`, which reads them; tables/ sets figures of runs side by side as text.
"""
