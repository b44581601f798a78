"""Train in fp32 and in bf16, and compare the accuracy of the models. Both are evaluated in fp32.

    python scripts/bf16_accuracy.py                     # an hour on one thread of a CPU
    python scripts/bf16_accuracy.py --steps 20 --samples 20 --seeds 1 --out accuracy.jsonl
    python scripts/performance.py --render              # write the table of docs/performance.md

Each row has one method and one seed, in both formats. The runs of a row have the same initial weights,
examples, masks and orders. Stored rows of the same steps and samples stay, so the same command continues
where it was interrupted.

On a CPU without instructions for bf16, PyTorch's matrix products in bf16 take ten times as long as in fp32.
The script then computes them in fp32, and rounds each result to bf16, as the instructions do.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from performance import ROWS, hardware
from torch.utils._python_dispatch import TorchDispatchMode

from latent_tokens import EvalConfig, TrainConfig, evaluate, fit, from_pretrained
from latent_tokens.configs import Precision
from latent_tokens.network.kernels import bf16_is_fast
from latent_tokens.storage.rows import append_line, read_lines
from latent_tokens.training.setup import join_ranks, setup
from latent_tokens.training.step import validation_loss

Row = dict[str, Any]

PART = "bf16-accuracy"
TASK = "sudoku-6"
METHODS = ("scdm", "mdm")
CANDIDATES = 4  # as in the demo
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
PRODUCTS = (
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.baddbmm.default,
)


class RoundedProducts(TorchDispatchMode):
    """Matrix products of bf16 tensors, computed in fp32 and rounded to bf16."""

    def __torch_dispatch__(
        self,
        function: torch._ops.OpOverload,
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        options = options or {}
        if function not in PRODUCTS or arguments[-1].dtype != torch.bfloat16:
            return function(*arguments, **options)
        return function(*(tensor.float() for tensor in arguments), **options).bfloat16()


def measured(config: TrainConfig, num_samples: int) -> Row:
    """Train a model. Return its validation loss and its percentage of valid boards, computed in fp32."""
    emulated = config.precision == "bf16" and not torch.accelerator.is_available() and not bf16_is_fast()
    with RoundedProducts() if emulated else nullcontext():
        folder = fit(config)
    run = setup(replace(config, resume="auto"), None, None, None, join_ranks(config))
    in_fp32 = replace(run, config=replace(run.config, precision="fp32"))
    evaluation = EvalConfig(
        latents=("all",), candidates=CANDIDATES, num_samples=num_samples, threads=config.threads
    )
    (row,) = evaluate(from_pretrained(folder), TASK, evaluation)
    return {"validation_loss": validation_loss(in_fp32), "valid": row["valid"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each method and seed, and append a row of each as soon as it is complete."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3, help="Seeds 0, 1, ...")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", default="nano")
    parser.add_argument("--num-train", type=int, help="Training examples. Default: as in the demo.")
    parser.add_argument("--out", type=Path, default=ROWS, help="File of the rows.")
    options = parser.parse_args(arguments)

    for seed in range(options.seeds):
        for method in METHODS:
            setting = {
                "part": PART,
                "method": method,
                "seed": seed,
                "size": options.size,
                "steps": options.steps,
                "samples": options.samples,
            }
            if any(setting.items() <= row.items() for row in read_lines(options.out)):
                continue
            row = {**setting, "hardware": hardware(), "torch": torch.__version__.split("+")[0]}
            for precision in PRECISIONS:
                with TemporaryDirectory() as folder:
                    config = TrainConfig(
                        TASK,
                        method,
                        Path(folder, "run"),
                        size=options.size,
                        steps=options.steps,
                        evaluate_every=options.steps,
                        precision=precision,
                        threads=options.threads,
                        seed=seed,
                        num_train=options.num_train,
                    )
                    row[precision] = measured(config, options.samples)
            append_line(options.out, row)


if __name__ == "__main__":
    main()
