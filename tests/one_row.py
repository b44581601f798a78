"""The command line where no more than one row of a batch fits into memory."""

from latent_tokens import memory
from latent_tokens.cli import entry

if __name__ == "__main__":
    memory.TRAINING_BYTES = 1
    entry()
