"""A program that trains a network of the user's own: arguments are the run directory and ddp or fsdp."""

import sys
from pathlib import Path

import torch

from helpers.own_network import Tied
from latent_tokens import TrainConfig, fit


def entry():
    out, parallel = sys.argv[1:]
    torch.manual_seed(0)
    net = Tied()
    net.dropout.p = 0.0  # which differs between ranks
    settings = {"batch_size": 8, "num_train": 50, "num_validation": 16, "evaluate_every": 5, "warmup": 5}
    fit(
        TrainConfig("sudoku-4", "scdm", Path(out), steps=20, precision="fp32", parallel=parallel, **settings),
        net=net,
    )
