"""Data sets: examples by split and packed text, written with a manifest and read with checks."""
