"""Run the command line, and print the share of weights, EMA weights and optimizer state on each rank."""

from latent_tokens import cli
from latent_tokens.training import loop as training


def share(tensors):
    """Return the share of the elements of tensors that is on this rank."""
    parts = [(getattr(tensor, "_local_tensor", tensor).numel(), tensor.numel()) for tensor in tensors]
    return round(sum(local for local, _ in parts) / sum(full for _, full in parts), 2)


def train(run, observe, original=training.train):
    original(run, observe)
    moments = [values["exp_avg"] for values in run.optimizer.state.values()]
    print(
        "held",
        share(run.net.parameters()),
        share(run.ema.module.parameters()),
        share(moments),
        flush=True,
    )


def entry():
    training.train = train
    cli.entry()
