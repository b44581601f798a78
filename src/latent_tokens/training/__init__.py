"""The training loop, its checkpoints, signals and sharding."""
