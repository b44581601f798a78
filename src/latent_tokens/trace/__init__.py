"""One decode as data, pictures and terminal output."""
