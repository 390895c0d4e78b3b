"""Checks, one file per subject: find(facts) yields each Problem (leapmpi/tools/doctor/problems.py).

The facts are plain values (`leapmpi doctor --json` prints them), so a check needs neither MPI nor a second machine.
"""
