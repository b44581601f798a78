"""A model with its task: load, train, generate, evaluate and share it in a few lines."""
