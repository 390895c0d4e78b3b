"""Tasks, one module each; `MEMBER` is a TaskMember (leapmpi/nn/task.py)."""
