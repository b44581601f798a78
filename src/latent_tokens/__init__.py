"""Train, sample from and evaluate sequence models whose latent tokens, predicted but not decoded, take part in the prediction.

Names are resolved on first use (PEP 562), so that `latent-tokens --help` imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latent_tokens.configs import SIZES, DataConfig, EvalConfig, Size, TrainConfig
    from latent_tokens.data import load_data, make_data
    from latent_tokens.decoding import Decoding, Generated, Step, entropy, generate, margin, top_prob
    from latent_tokens.evaluation import evaluate
    from latent_tokens.layout import Layout
    from latent_tokens.methods import METHODS, Denoiser, Method
    from latent_tokens.model import Transformer
    from latent_tokens.objective import loss
    from latent_tokens.order import any_order, given, left_to_right, nearest, random
    from latent_tokens.partition import equal_parts, given_partition, reverse_process
    from latent_tokens.pretrained import from_pretrained, save_pretrained
    from latent_tokens.tasks import TASKS, Examples, Task
    from latent_tokens.training import fit

HOMES = {
    "configs": ("SIZES", "DataConfig", "EvalConfig", "Size", "TrainConfig"),
    "data": ("load_data", "make_data"),
    "decoding": ("Decoding", "Generated", "Step", "entropy", "generate", "margin", "top_prob"),
    "evaluation": ("evaluate",),
    "layout": ("Layout",),
    "methods": ("METHODS", "Denoiser", "Method"),
    "model": ("Transformer",),
    "objective": ("loss",),
    "order": ("any_order", "given", "left_to_right", "nearest", "random"),
    "partition": ("equal_parts", "given_partition", "reverse_process"),
    "pretrained": ("from_pretrained", "save_pretrained"),
    "tasks": ("TASKS", "Examples", "Task"),
    "training": ("fit",),
}
HOME_OF = {name: module for module, names in HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604
    *HOME_OF
]


def __getattr__(name: str) -> Any:
    if name not in HOME_OF:
        raise AttributeError(f"module 'latent_tokens' has no attribute {name!r}")
    return getattr(import_module(f"latent_tokens.{HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOME_OF])
