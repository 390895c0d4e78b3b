"""What a run tells of itself, to people and in its run folder: its start, its epochs, its end."""
