"""Run the command line as if only one row of a batch fits into memory."""

from latent_tokens import cli
from latent_tokens.network import memory


def entry():
    memory.TRAINING_BYTES = 1
    cli.entry()
