"""Sudoku: boards to infill, puzzles as text, and how both are generated and solved."""
