"""Sudoku boards and puzzles."""
