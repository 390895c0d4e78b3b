"""Sampling on a device, in whose memory the topology is stored; draws are bit-identical to those of the CPU.

In: the topology, roots, a torch device. Out: Blocks with arrays on the device. All operations are torch operations on
int64, so the same code runs on every device, including the CPU.
"""
