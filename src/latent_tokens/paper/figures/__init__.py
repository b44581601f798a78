"""Figures of rows, and the tables that belong to one figure."""
