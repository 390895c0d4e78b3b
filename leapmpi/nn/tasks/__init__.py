"""One file per task; each offers `TASK`, a sub-class of Task (leapmpi/nn/task.py)."""
