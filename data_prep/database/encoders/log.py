"""Encoder `log`: sign and logarithm of a number, scaled as by `standard`; for amounts over several powers of ten."""

from __future__ import annotations

import numpy as np

from data_prep.database.scaled_numbers import scaled

MEMBER = scaled(lambda values: np.sign(values) * np.log1p(np.abs(values)))
