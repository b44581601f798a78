"""Countdown puzzles."""
