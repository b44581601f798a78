"""What each command takes and does, a file a command; everything heavy is imported when it is called, so that --help is quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from latent_tokens.commands.bench import Bench, run_bench
from latent_tokens.commands.data import Data, run_data
from latent_tokens.commands.demo import run_demo
from latent_tokens.commands.doctor import Doctor, run_doctor
from latent_tokens.commands.evaluate import Evaluate, run_evaluate
from latent_tokens.commands.export import Export, run_export
from latent_tokens.commands.importing import Import, run_import
from latent_tokens.commands.likelihood import Likelihood, run_likelihood
from latent_tokens.commands.reproduce import run_reproduce
from latent_tokens.commands.sample import Sample, run_sample
from latent_tokens.commands.serve import Serve, run_serve
from latent_tokens.commands.solve import Solve, run_solve
from latent_tokens.commands.trace import Trace, run_trace
from latent_tokens.commands.train import run_train
from latent_tokens.configs import DemoConfig, ReproduceConfig, TrainConfig

__all__ = ["RUN", "Bench", "Data", "Doctor", "Evaluate", "Export", "Import", "Likelihood", "Sample", "Serve", "Solve", "Trace"]

RUN: dict[type, Callable[[Any], int]] = {
    Data: run_data,
    TrainConfig: run_train,
    Evaluate: run_evaluate,
    Sample: run_sample,
    Solve: run_solve,
    Serve: run_serve,
    Trace: run_trace,
    DemoConfig: run_demo,
    Bench: run_bench,
    ReproduceConfig: run_reproduce,
    Import: run_import,
    Likelihood: run_likelihood,
    Export: run_export,
    Doctor: run_doctor,
}
