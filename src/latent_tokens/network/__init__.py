"""The transformer and the optimized implementations that are tested equal to the reference in core."""
