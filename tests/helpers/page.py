"""Models of the page and of traces, and their decodes."""

import torch

from latent_tokens import METHODS, SIZES, TASKS, Transformer, from_pretrained
from latent_tokens.checkpoints.files import find
from latent_tokens.checkpoints.learned import learned_task
from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

SIX = ".....1.1.5..45.162..23....1.2.6.541."


def model(name):
    """Return a bundled model, or one of a run directory."""
    return LoadedModel(name, from_pretrained(name), learned_task(find(name)))


def untrained(task, method="scdm", gain=4.0, **settings):
    """Return an untrained model with large weights, so that its input matters."""
    torch.manual_seed(0)
    task = TASKS[task] if isinstance(task, str) else task
    net = Transformer(SIZES["nano"], task.vocab_size, task.length, **settings).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(gain if weight.dim() == 2 else 1)
    net.method = METHODS[method] if isinstance(method, str) else method
    return LoadedModel(f"{task.name}-untrained", net, task)


def decoded(loaded, puzzle, **setting):
    """Return the trace of a puzzle by the package."""
    return trace(DecodeRequest(loaded, loaded.task.encode(puzzle), SamplingConfig(**setting)))
