"""Graph neural networks over sampled blocks: tensors, aggregation, dropout, layers, models, loss, parameters.

In: a model config, the blocks of a sample, rows of features. Out: logits, losses, and gradients in one flat buffer.
"""
