"""One file per model; each offers `build(config, layers, in_dim, out_dim) -> Model`."""
