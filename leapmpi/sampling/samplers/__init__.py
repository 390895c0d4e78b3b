"""Samplers, one module each.

A module has build(setup: Setup, options) -> Sampler and, where `--sampler-option` sets any, a dataclass `Options` of
settings. `build` raises ConfigError for options and fan-outs that do not fit.
"""
