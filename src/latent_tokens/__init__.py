"""Train, sample from and evaluate masked diffusion models, with latent tokens set at inference.

Names are resolved on first use (PEP 562), so that `latent-tokens --help` imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latent_tokens.checkpoints.hugging_face import from_transformers as from_transformers
    from latent_tokens.checkpoints.pretrained import (
        from_pretrained as from_pretrained,
        save_pretrained as save_pretrained,
    )
    from latent_tokens.checkpoints.stored_methods import load_method as load_method
    from latent_tokens.configs import (
        DataConfig as DataConfig,
        EvalConfig as EvalConfig,
        TrainConfig as TrainConfig,
    )
    from latent_tokens.core.attention import dense_mask as dense_mask
    from latent_tokens.core.blocks import block_causal as block_causal, blockwise as blockwise
    from latent_tokens.core.confidence import entropy as entropy, margin as margin, top_prob as top_prob
    from latent_tokens.core.cost import (
        cached_cost as cached_cost,
        most_tokens as most_tokens,
        relative_cost as relative_cost,
        tokens_processed as tokens_processed,
    )
    from latent_tokens.core.decoding import (
        Decoding as Decoding,
        Generated as Generated,
        Step as Step,
        growing as growing,
    )
    from latent_tokens.core.layout import Layout as Layout, next_layout as next_layout
    from latent_tokens.core.methods import METHODS as METHODS, Denoiser as Denoiser, Method as Method
    from latent_tokens.core.objective import loss as loss
    from latent_tokens.core.order import (
        any_order as any_order,
        given as given,
        left_to_right as left_to_right,
    )
    from latent_tokens.core.partition import (
        equal_parts as equal_parts,
        given_partition as given_partition,
        reverse_process as reverse_process,
    )
    from latent_tokens.core.policies import (
        PolicyInput as PolicyInput,
        Showing as Showing,
        adjacent as adjacent,
        decaying as decaying,
        distant as distant,
        nearest as nearest,
        random as random,
    )
    from latent_tokens.core.relevance import influence as influence, relevant as relevant
    from latent_tokens.data.datasets import load_data as load_data, make_data as make_data
    from latent_tokens.data.splits import dataset as dataset
    from latent_tokens.data.tensors import as_numpy as as_numpy, as_tensors as as_tensors
    from latent_tokens.evaluation.evaluate import evaluate as evaluate
    from latent_tokens.evaluation.held_out import nats_along_orders as nats_along_orders
    from latent_tokens.evaluation.measurements import results as results
    from latent_tokens.evaluation.solve import solve as solve
    from latent_tokens.model.loading import load as load, train as train
    from latent_tokens.model.model import Model as Model
    from latent_tokens.model.outputs import ResultTable as ResultTable, Samples as Samples
    from latent_tokens.network.contract import check_network as check_network
    from latent_tokens.network.fast import generate as generate
    from latent_tokens.network.hf import HuggingFaceDenoiser as HuggingFaceDenoiser
    from latent_tokens.network.likelihood import log_likelihood as log_likelihood
    from latent_tokens.network.sweep import sweep as sweep
    from latent_tokens.network.transformer import Transformer as Transformer
    from latent_tokens.sharing.collator import DiffusionCollator as DiffusionCollator
    from latent_tokens.sharing.lm_eval import LatentTokensLM as LatentTokensLM
    from latent_tokens.sizes import SIZES as SIZES, Size as Size
    from latent_tokens.tasks import (
        TASKS as TASKS,
        Examples as Examples,
        Task as Task,
        TaskBase as TaskBase,
        Text as Text,
    )
    from latent_tokens.training.loop import fit as fit

HOMES = {
    "configs": ("DataConfig", "EvalConfig", "TrainConfig"),
    "data.datasets": ("load_data", "make_data"),
    "core.attention": ("dense_mask",),
    "core.blocks": ("block_causal", "blockwise"),
    "core.confidence": ("entropy", "margin", "top_prob"),
    "core.cost": ("cached_cost", "most_tokens", "relative_cost", "tokens_processed"),
    "core.decoding": ("Decoding", "Generated", "Step", "growing"),
    "evaluation.evaluate": ("evaluate",),
    "network.fast": ("generate",),
    "network.hf": ("HuggingFaceDenoiser",),
    "evaluation.held_out": ("nats_along_orders",),
    "evaluation.measurements": ("results",),
    "evaluation.solve": ("solve",),
    "core.layout": ("Layout", "next_layout"),
    "network.likelihood": ("log_likelihood",),
    "core.methods": ("METHODS", "Denoiser", "Method"),
    "core.objective": ("loss",),
    "core.order": ("any_order", "given", "left_to_right"),
    "core.policies": (
        "PolicyInput",
        "Showing",
        "adjacent",
        "decaying",
        "distant",
        "nearest",
        "random",
    ),
    "core.partition": ("equal_parts", "given_partition", "reverse_process"),
    "checkpoints.hugging_face": ("from_transformers",),
    "checkpoints.pretrained": ("from_pretrained", "save_pretrained"),
    "checkpoints.stored_methods": ("load_method",),
    "core.relevance": ("influence", "relevant"),
    "model.loading": ("load", "train"),
    "model.model": ("Model",),
    "model.outputs": ("ResultTable", "Samples"),
    "network.contract": ("check_network",),
    "network.transformer": ("Transformer",),
    "sharing.collator": ("DiffusionCollator",),
    "sharing.lm_eval": ("LatentTokensLM",),
    "sizes": ("SIZES", "Size"),
    "network.sweep": ("sweep",),
    "tasks": ("TASKS", "Examples", "Task", "TaskBase", "Text"),
    "data.splits": ("dataset",),
    "data.tensors": ("as_numpy", "as_tensors"),
    "training.loop": ("fit",),
}
HOME_OF = {name: module for module, names in HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604
    *HOME_OF
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("latent_tokens.storage.versions").package_version()
    if name not in HOME_OF:
        raise AttributeError(f"module 'latent_tokens' has no attribute {name!r}")
    return getattr(import_module(f"latent_tokens.{HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOME_OF])
