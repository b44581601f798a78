"""Training and measuring recipes: the plan, rows, and the queue of processes."""
