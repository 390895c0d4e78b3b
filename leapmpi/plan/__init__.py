"""Planning: arithmetic from a batch of roots to a Schedule, with no communicator and no device."""
