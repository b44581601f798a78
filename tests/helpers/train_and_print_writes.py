"""Run the command line as one rank, and print how many files of the run directory it opened to write."""

import os
import sys

from latent_tokens.cli import main


def entry():
    folder = sys.argv[sys.argv.index("--out") + 1]
    written = set()

    def note(event, arguments):
        is_file = event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(folder)
        if is_file and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.add(arguments[0])

    sys.addaudithook(note)
    code = main(sys.argv[1:])
    print(f"rank {os.environ['RANK']} wrote {len(written)} files")
    sys.exit(code)
