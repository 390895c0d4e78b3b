"""Samplers: one module each, with `build(setup, options)` and, where it has any, `Options`: a dataclass of settings."""
