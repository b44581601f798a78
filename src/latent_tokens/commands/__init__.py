"""The commands: their flags as dataclasses, and their functions.

A command imports heavy libraries when it runs, so --help is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from latent_tokens.commands.bench import Bench, run_bench
from latent_tokens.commands.data import Data, run_data
from latent_tokens.commands.doctor import Doctor, run_doctor
from latent_tokens.commands.evaluate import Evaluate, run_evaluate
from latent_tokens.commands.likelihood import Likelihood, run_likelihood
from latent_tokens.commands.lm_eval import LmEval, run_lm_eval
from latent_tokens.commands.models import Export, Import, run_export, run_import
from latent_tokens.commands.page import Demo, Page, run_demo, run_page
from latent_tokens.commands.results import Reproduce, Results, run_reproduce, run_results
from latent_tokens.commands.sample import Sample, run_sample
from latent_tokens.commands.solve import Solve, run_solve
from latent_tokens.commands.trace import Trace, run_trace
from latent_tokens.commands.train import Train, run_train

__all__ = ["COMMANDS", "RUN"]

COMMANDS: dict[str, type] = {
    "data": Data,
    "train": Train,
    "evaluate": Evaluate,
    "results": Results,
    "sample": Sample,
    "solve": Solve,
    "page": Page,
    "trace": Trace,
    "demo": Demo,
    "bench": Bench,
    "reproduce": Reproduce,
    "import": Import,
    "likelihood": Likelihood,
    "lm-eval": LmEval,
    "export": Export,
    "doctor": Doctor,
}

RUN: dict[type, Callable[[Any], int]] = {
    Data: run_data,
    Train: run_train,
    Evaluate: run_evaluate,
    Results: run_results,
    Sample: run_sample,
    Solve: run_solve,
    Page: run_page,
    Trace: run_trace,
    Demo: run_demo,
    Bench: run_bench,
    Reproduce: run_reproduce,
    Import: run_import,
    Likelihood: run_likelihood,
    LmEval: run_lm_eval,
    Export: run_export,
    Doctor: run_doctor,
}
