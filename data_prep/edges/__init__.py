"""Edges: from what a source reads, in any order, to a sorted adjacency, in bounded memory.

In: a RawGraph, whose edges are an array or an EdgeStream. Out: an Adjacency (in-neighbours by vertex, ascending) with
counts of what was dropped, and the connected components of it.
"""
