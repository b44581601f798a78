"""The commands: their flags as dataclasses, and their functions.

A command imports heavy libraries when it runs, so --help is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from latent_tokens.commands.data import Data, run_data
from latent_tokens.commands.doctor import Doctor, run_doctor
from latent_tokens.commands.evaluate import Evaluate, run_evaluate
from latent_tokens.commands.likelihood import Likelihood, run_likelihood
from latent_tokens.commands.lm_eval import LmEval, run_lm_eval
from latent_tokens.commands.models import Export, Import, run_export, run_import
from latent_tokens.commands.page import Demo, Page, run_demo, run_page
from latent_tokens.commands.results import Reproduce, Results, run_reproduce, run_results
from latent_tokens.commands.sample import Sample, run_sample
from latent_tokens.commands.score import Score, run_score
from latent_tokens.commands.solve import Solve, run_solve
from latent_tokens.commands.trace import Trace, run_trace
from latent_tokens.commands.train import Train, run_train

__all__ = ["COMMANDS", "RUN"]

TABLE: dict[str, tuple[type, Callable[[Any], int]]] = {
    "data": (Data, run_data),
    "train": (Train, run_train),
    "evaluate": (Evaluate, run_evaluate),
    "results": (Results, run_results),
    "sample": (Sample, run_sample),
    "solve": (Solve, run_solve),
    "score": (Score, run_score),
    "page": (Page, run_page),
    "trace": (Trace, run_trace),
    "demo": (Demo, run_demo),
    "reproduce": (Reproduce, run_reproduce),
    "import": (Import, run_import),
    "likelihood": (Likelihood, run_likelihood),
    "lm-eval": (LmEval, run_lm_eval),
    "export": (Export, run_export),
    "doctor": (Doctor, run_doctor),
}
"""The flags of each command, and the function that runs it."""

COMMANDS = {name: flags for name, (flags, _) in TABLE.items()}
RUN = dict(TABLE.values())
