"""How what a layer reads reaches the rank that computes it: raw rows, projected rows, or partial aggregates.

In: a mini-batch whose blocks are sampled. Out: its outputs, loss and gradients, with gradients returned to where rows
were computed. `modes/` holds one file per mode; `base` says what a mode is, `computed_rows` is the base of modes whose
rows depend on weights, `partial_block` cuts blocks to local sources, `selection` chooses a mode by bytes and rates.
"""
