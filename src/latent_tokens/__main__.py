"""`python -m latent_tokens`, which is what launchers of several processes call."""

from latent_tokens.cli import entry

entry()
