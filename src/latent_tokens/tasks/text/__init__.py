"""Text: sequences of tokens and their tokenizers."""
