"""Models that a user writes: `--model FILE.py:CLASS`.

construct.py makes the module, module.py runs it on blocks, batch_check.py finds results that depend on placement.
"""
