"""Model directories, the Hugging Face Hub, and checkpoints published by others."""
