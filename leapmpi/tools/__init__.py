"""Implementation of the commands `doctor`, `plan`, `submit`, `export` and `bench`.

In: a config or a site profile. Out: tables, forecasts, batch scripts. Only cli/ imports this room.
"""
