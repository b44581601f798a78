"""The adapter of lm-eval, the evaluation harness of EleutherAI."""
