"""One iteration on one rank: from a batch of roots to gradients.

In: a RankContext (communicator, sampler, model, feature fetchers) and the strategy's settings. Out: mini-batches that
are planned, sampled and fetched, possibly ahead of time (`ahead`), and their loss and gradients (`engine`).
`placement` is the base of strategies, `traffic` predicts bytes and memory, `exchange` brings a layer its inputs,
`tuning` chooses by measured rates.
"""
