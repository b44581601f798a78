"""The validation loss, and the weights at its lowest value."""

from __future__ import annotations

from functools import partial
from math import ceil, inf, isfinite
from pathlib import Path

import torch

from latent_tokens import processes
from latent_tokens.checkpoints.pretrained import weights_bytes
from latent_tokens.core.denoiser import as_denoiser
from latent_tokens.core.objective import weighted_nll
from latent_tokens.network.memory import training_rows
from latent_tokens.storage import restore_files, write_atomic
from latent_tokens.training.batches import VALIDATION, draw_examples, microbatches
from latent_tokens.training.run import Run
from latent_tokens.training.sharding import full_tensor, unsharded
from latent_tokens.training.state import State
from latent_tokens.training.step import autocast


def validation_loss(run: Run) -> float:
    """Return the mean loss of the EMA weights over the validation examples.

    Masks and orders are always the same. Each rank takes its share of the batches.
    """
    config = run.config
    examples = run.splits["validation"]
    net = run.ema.module
    denoiser = as_denoiser(net)
    device = run.accelerator.device
    count = len(examples.tokens)

    # Sum the losses of this rank's batches.
    net.eval()
    max_rows = partial(training_rows, net)
    loss = 0.0
    with torch.no_grad(), unsharded(net), autocast(config, device):
        for batch_index in processes.shard_indices(ceil(count / config.batch_size)).tolist():
            start = config.batch_size * batch_index
            part = examples.take(slice(start, start + config.batch_size))
            batch = draw_examples(part, run.method, config, run.mask_id, VALIDATION, start, run.pad)
            batch = batch.to(device)
            losses = [
                weighted_nll(denoiser, run.method, batch.take(rows)).item()
                for rows in microbatches(batch, max_rows)
            ]
            loss += len(part.tokens) * sum(losses)

    (total_loss,) = processes.all_reduce_sum([loss], device)
    return total_loss / count


def keep_if_best(run: Run, loss: float) -> None:
    """Log a validation loss, and write the EMA weights if it is the lowest so far.

    Raises:
        ValueError: the loss is not finite, or the data changed.
    """
    if not isfinite(loss):
        problem = f"validation loss {loss} at step {run.state.step}: training diverged"
        raise ValueError(f"{problem}. Use a lower lr or a longer warmup.")
    run.check_data()
    run.log({"validation_loss": loss})
    if loss >= run.state.best:
        return
    run.state.best = loss
    run.state.weights = {
        name: full_tensor(tensor).detach().cpu().clone()
        for name, tensor in run.ema.module.state_dict().items()
    }
    if processes.is_main():
        write_atomic({run.config.folder / "model.safetensors": weights_bytes(run.state.weights)})


def restore_best(folder: Path, state: State) -> None:
    """Restore the model.safetensors of a checkpoint: the file may be of a later step, corrupt or missing."""
    path = folder / "model.safetensors"
    if state.best == inf:
        path.unlink(missing_ok=True)
    elif state.weights:  # a checkpoint of version 0.1 has none
        restore_files({path: weights_bytes(state.weights)})
