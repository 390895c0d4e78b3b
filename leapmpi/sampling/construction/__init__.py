"""Construction of samplers from settings: the samplers of leapmpi, of users, and sharded ones."""
