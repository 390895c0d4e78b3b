"""Mini-batches that some ranks prepare and others compute with: what is sent, and both engines (Armada, 2025)."""
