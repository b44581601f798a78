"""Model directories, the Hugging Face Hub, and checkpoints that others published."""
