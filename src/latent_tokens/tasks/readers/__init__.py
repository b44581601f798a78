"""Readers of puzzle files that others published."""
