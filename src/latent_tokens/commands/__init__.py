"""The commands, one file each: their options, examples and functions.

A command imports heavy libraries when it runs, so --help is quick.
"""

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
from latent_tokens.commands.lm_eval import LmEval, run_lm_eval
from latent_tokens.commands.page import Page, run_page
from latent_tokens.commands.reproduce import run_reproduce
from latent_tokens.commands.results import Results, run_results
from latent_tokens.commands.sample import Sample, run_sample
from latent_tokens.commands.solve import Solve, run_solve
from latent_tokens.commands.trace import Trace, run_trace
from latent_tokens.commands.train import Train, run_train
from latent_tokens.configs import DemoConfig, ReproduceConfig

__all__ = ["COMMANDS", "DESCRIPTIONS", "EXAMPLES", "RUN"]

COMMANDS: dict[str, type] = {
    "data": Data,
    "train": Train,
    "evaluate": Evaluate,
    "results": Results,
    "sample": Sample,
    "solve": Solve,
    "page": Page,
    "trace": Trace,
    "demo": DemoConfig,
    "bench": Bench,
    "reproduce": ReproduceConfig,
    "import": Import,
    "likelihood": Likelihood,
    "lm-eval": LmEval,
    "export": Export,
    "doctor": Doctor,
}

DESCRIPTIONS = {
    "data": "Make a data set, or convert one from a file.",
    "train": "Train a model, or one for each size and seed.",
    "evaluate": "Evaluate a model: accuracy and cost for each number of latent tokens.",
    "results": "Print the results of several runs as one table, or write them as CSV.",
    "sample": "Draw samples from a model and print them.",
    "solve": "Solve a puzzle with a model and verify the answer. The exit code is 1 if it is not solved.",
    "page": "Write one HTML file in which models decode puzzles in the browser, without a server.",
    "trace": "Record one decode as an HTML page or a picture.",
    "demo": "Train a 6x6 Sudoku model and plot accuracy against the number of latent tokens.",
    "bench": "Measure the speed of training and decoding on this machine.",
    "reproduce": "Reproduce a table or figure of the paper.",
    "import": (
        "Convert a published masked diffusion model into a model directory. Nothing in its files is executed."
    ),
    "likelihood": "Compute the exact log-likelihood of a text, averaged over decoding orders.",
    "lm-eval": "Evaluate a text model on tasks of lm-eval, with exact likelihoods.",
    "export": "Write a model directory to share, which transformers can also load.",
    "doctor": "Check the installation and suggest fixes. The exit code is 1 if there is a problem.",
}

PUZZLE = "1.....3............2................"

EXAMPLES = {  # two of each command; "" is the program itself
    "": (f"solve {PUZZLE} --latents all", "evaluate sudoku-6-scdm --latents 0 4 all --num-samples 100"),
    "data": (
        "data sudoku-6 --num-train 10000 --out data/six",
        "data text --source book.txt --tokenizer bpe:4096 --length 128",
    ),
    "train": (
        "train text esolm --data data/text --size tiny --resume auto",
        "train sudoku-4 scdm --steps 600 --seed 0 1 2 --out runs/four-{seed}",
    ),
    "evaluate": (
        "evaluate sudoku-6-scdm --latents 0 4 all --num-samples 100",
        "evaluate runs/four --candidates growing --json",
    ),
    "results": ("results runs/four runs/five", "results 'runs/*' --metric cells --csv results.csv"),
    "sample": (
        "sample sudoku-6-scdm --latents all --num-samples 3",
        "sample runs/text --prompt 'Once upon a time' --show",
    ),
    "solve": (f"solve {PUZZLE} --latents all", f"solve {PUZZLE} --latents 4 --candidates 4"),
    "page": ("page --open", "page runs/four sudoku-6-scdm -o four.html"),
    "trace": (
        f"trace sudoku-6-scdm {PUZZLE} --latents all -o trace.html",
        f"trace sudoku-6-scdm {PUZZLE} --latents all --compare 0 --png trace.png",
    ),
    "demo": ("demo", "demo --scale smoke --out runs/smoke"),
    "bench": (
        "bench --methods scdm mdm --precisions fp32",
        "bench --sizes nano --lengths 16 --train nano:8x16 --rounds 1",
    ),
    "reproduce": ("reproduce figure-1 --scale smoke", "reproduce all --status"),
    "import": (
        "import model.ckpt models/esolm --tokenizer gpt2",
        "import GSAI-ML/LLaDA-8B-Base models/llada --length 256",
    ),
    "likelihood": (
        "likelihood runs/text --text book.txt --latents 0 16",
        "likelihood runs/text --data data/text --num-sequences 16",
    ),
    "lm-eval": (
        "lm-eval runs/text --tasks lambada_openai --latents 8 --limit 100",
        "lm-eval runs/text --tasks mine --include-path tasks --order left_to_right",
    ),
    "export": ("export runs/four models/four", "export sudoku-6-scdm models/six --precision bf16"),
    "doctor": ("doctor", "doctor --json"),
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
    DemoConfig: run_demo,
    Bench: run_bench,
    ReproduceConfig: run_reproduce,
    Import: run_import,
    Likelihood: run_likelihood,
    LmEval: run_lm_eval,
    Export: run_export,
    Doctor: run_doctor,
}
