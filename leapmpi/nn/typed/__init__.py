"""Layers of typed graphs: input rows by type, sums and attention by relation, and their products.

In: a TypedSchema, blocks whose edges have relations, rows as a TypedMatrix. Out: the classes that typed models extend.
Start with typed_layer.py; relation_layer.py is for means, relation_attention.py for attention.
"""
