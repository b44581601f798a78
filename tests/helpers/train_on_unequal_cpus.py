"""Run the command line on ranks whose CPUs differ: only rank 0 has instructions for bf16."""

import torch

from latent_tokens import cli, processes


def entry():
    capabilities = {"avx512_bf16": False, "amx_bf16": processes.is_main()}
    torch.cpu.get_capabilities = lambda: capabilities
    cli.entry()
