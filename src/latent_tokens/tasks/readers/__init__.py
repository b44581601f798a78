"""Readers of data files that others published."""
