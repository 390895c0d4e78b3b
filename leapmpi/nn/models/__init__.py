"""Models, one module each; `MEMBER` is a ModelMember (leapmpi/config/options.py)."""
