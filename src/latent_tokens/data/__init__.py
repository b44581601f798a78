"""Data sets: examples by split, documents and packed text, with a manifest."""
