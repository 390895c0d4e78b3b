"""What destinations draw on a device, in torch operations and Triton's: what each kernel of the CPU draws, to the bit.

In: the topology on the device, destinations with their lists. Out: edges by their numbers, and weights.
"""
