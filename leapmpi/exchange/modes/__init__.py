"""Exchange modes, one module each, chosen by `--remote`; `MEMBER` is a ModeMember (../mode.py)."""
