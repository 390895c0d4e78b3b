"""Tables with keys and times: their schema, keys matched to rows, columns encoded; from them a TypedRawGraph.

Each row becomes a vertex of its table's type, each foreign key a relation and its reverse.
"""
