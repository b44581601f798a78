"""Training and measuring recipes: the plan, rows, and processes of several models."""
