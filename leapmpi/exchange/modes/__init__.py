"""Exchange modes, one file each, chosen by `--remote`: MODE is a sub-class of ExchangeMode (../base.py)."""
