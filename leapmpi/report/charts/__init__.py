"""Figures as inline SVG, in colours that the page's style sheet sets for light and dark.

In: the figures of figures.py. Out: markup, the same bytes for the same numbers.
"""
