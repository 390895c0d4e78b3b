"""Samplers, one module each.

A module has build(setup: Setup, options) -> Sampler and, if `--sampler-option` applies, a dataclass `Options` of
settings. `build` raises ConfigError for unsuitable options and fan-outs.
"""
