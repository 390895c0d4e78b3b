"""Sampling on a device: the topology lies in its memory, and draws are those of the CPU to the bit.

In: the topology, roots, a torch device. Out: Blocks whose arrays are on the device too. All is torch operations on
int64, so the same code runs on every device, the CPU among them.
"""
