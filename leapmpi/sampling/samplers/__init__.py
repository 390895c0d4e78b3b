"""Samplers, one module each.

`MEMBER` is a SamplerMember (leapmpi/config/options.py): build(setup: Setup, options) -> Sampler, and the dataclass of
its options. `build` raises ConfigError for unsuitable options and fan-outs.
"""
