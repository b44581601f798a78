"""Zebra puzzles: clues, their language, and how both are generated."""
