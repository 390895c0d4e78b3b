"""Formats of `leapmpi export`, one module each; `MEMBER` is an ExportFormat (leapmpi/tools/export/export_run.py)."""
