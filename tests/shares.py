"""The command line, which at the end of training says how large a part of the weights, the average and the moments this process holds."""

from latent_tokens import training
from latent_tokens.cli import entry


def held(tensors):
    """The share of the tensors' elements that is here."""
    parts = [(getattr(tensor, "_local_tensor", tensor).numel(), tensor.numel()) for tensor in tensors]
    return round(sum(here for here, _ in parts) / sum(whole for _, whole in parts), 2)


def go_on(run, taken=training.go_on):
    taken(run)
    moments = [values["exp_avg"] for values in run.optimiser.state.values()]
    print("held", held(run.net.parameters()), held(run.averaged.module.parameters()), held(moments), flush=True)


if __name__ == "__main__":
    training.go_on = go_on
    entry()
