"""Zebra puzzles."""
