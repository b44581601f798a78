"""One decode as data (the trace), as images and as terminal output, and how the puzzle of a task is drawn."""
