"""What the commands `doctor`, `plan`, `submit` and `bench` run: one room or module for each.

In: a config or a site profile. Out: tables, forecasts, batch scripts. Nothing in leapmpi but cli/ uses this room.
"""
