"""The door to Hugging Face: model directories, networks of transformers, export, cards and the Hub."""
