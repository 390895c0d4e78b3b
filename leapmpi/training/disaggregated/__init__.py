"""Training in which some ranks prepare and others compute: loading by role, the loop, evaluation."""
