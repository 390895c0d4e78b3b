"""What a finished run answers for the vertices of any dataset: exact outputs, written by all ranks."""
