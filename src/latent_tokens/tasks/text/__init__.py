"""Text and its tokenizers."""
