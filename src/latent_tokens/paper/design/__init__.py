"""The experiments: scales, cells with their variants, the paper's numbers, recipes and claims."""
