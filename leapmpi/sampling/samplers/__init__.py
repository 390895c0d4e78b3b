"""Samplers, one module each.

A module has build(setup: Setup, options) -> Sampler and, where there are options, a dataclass `Options` of settings.
"""
