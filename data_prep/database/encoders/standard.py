"""Encoder `standard`: a number, less the mean of the training period, over its deviation."""

from __future__ import annotations

from data_prep.database.scaled_numbers import scaled

MEMBER = scaled(lambda values: values)
