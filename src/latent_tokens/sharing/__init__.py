"""Model cards, the Hub, and the transformers adapter."""
