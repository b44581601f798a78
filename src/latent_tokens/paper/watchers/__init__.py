"""Watchers of decoding: what they count at every step becomes part of a row."""
