"""How an aggregate is put together from shares that several ranks compute, and how gradients go back to the shares.

The owner of some sources computes a share for each destination (`Layer.partial`). A `PartialForm` says how many rows a
share has and how shares combine. `Combination` is one such computation: local shares first, then those that arrived.
"""
