"""Countdown: arithmetic puzzles, their search and their notation."""
