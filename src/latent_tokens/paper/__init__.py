"""The paper's tables and figures: what it prints, recipes that make ours, and both side by side."""
