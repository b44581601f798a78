"""`python -m latent_tokens`, which is what launchers of several processes call."""

import sys

from latent_tokens.cli import main

sys.exit(main())
