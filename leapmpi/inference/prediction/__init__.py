"""The job `leapmpi predict`: exact outputs of a finished run for the vertices of any dataset."""
