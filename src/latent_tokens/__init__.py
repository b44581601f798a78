"""Train, sample from and evaluate masked diffusion models, with latent tokens set at inference.

Names are resolved on first use (PEP 562), so that `latent-tokens --help` imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latent_tokens.checkpoints.directory import (
        from_pretrained as from_pretrained,
        save_pretrained as save_pretrained,
    )
    from latent_tokens.checkpoints.hugging_face import from_transformers as from_transformers
    from latent_tokens.checkpoints.stored_methods import load_method as load_method
    from latent_tokens.configs import (
        DataConfig as DataConfig,
        EvalConfig as EvalConfig,
        TrainConfig as TrainConfig,
    )
    from latent_tokens.core.attention import block_causal as block_causal, dense_mask as dense_mask
    from latent_tokens.core.cost import (
        cached_cost as cached_cost,
        most_tokens as most_tokens,
        relative_cost as relative_cost,
        tokens_processed as tokens_processed,
    )
    from latent_tokens.core.decoding import (
        Candidates as Candidates,
        Decoding as Decoding,
        FixedCount as FixedCount,
        Generated as Generated,
        Step as Step,
        entropy as entropy,
        equal_parts as equal_parts,
        given_partition as given_partition,
        growing as growing,
        margin as margin,
        of_logits as of_logits,
        reverse_process as reverse_process,
        top_prob as top_prob,
    )
    from latent_tokens.core.denoiser import Denoiser as Denoiser
    from latent_tokens.core.layout import Layout as Layout, next_layout as next_layout
    from latent_tokens.core.method import METHODS as METHODS, Method as Method
    from latent_tokens.core.objective import loss as loss
    from latent_tokens.core.order import (
        any_order as any_order,
        blockwise as blockwise,
        given as given,
        left_to_right as left_to_right,
    )
    from latent_tokens.core.policies import (
        PolicyInput as PolicyInput,
        adjacent as adjacent,
        decaying as decaying,
        distant as distant,
        influence as influence,
        nearest as nearest,
        random as random,
        relevant as relevant,
    )
    from latent_tokens.data.datasets import make_data as make_data
    from latent_tokens.data.loading import (
        as_numpy as as_numpy,
        as_tensors as as_tensors,
        load_data as load_data,
    )
    from latent_tokens.data.splits import dataset as dataset
    from latent_tokens.evaluation.evaluate import evaluate as evaluate
    from latent_tokens.evaluation.likelihood import nats_along_orders as nats_along_orders
    from latent_tokens.evaluation.problems import solve as solve
    from latent_tokens.evaluation.report import results as results
    from latent_tokens.model import (
        Model as Model,
        ResultTable as ResultTable,
        Samples as Samples,
        load as load,
        train as train,
    )
    from latent_tokens.network.check import check_network as check_network
    from latent_tokens.network.fast import generate as generate
    from latent_tokens.network.hf import HuggingFaceDenoiser as HuggingFaceDenoiser
    from latent_tokens.network.likelihood import log_likelihood as log_likelihood
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
    "checkpoints.directory": (
        "from_pretrained",
        "save_pretrained",
    ),
    "checkpoints.hugging_face": ("from_transformers",),
    "checkpoints.stored_methods": ("load_method",),
    "configs": (
        "DataConfig",
        "EvalConfig",
        "TrainConfig",
    ),
    "core.attention": (
        "block_causal",
        "dense_mask",
    ),
    "core.cost": (
        "cached_cost",
        "most_tokens",
        "relative_cost",
        "tokens_processed",
    ),
    "core.decoding": (
        "Candidates",
        "Decoding",
        "FixedCount",
        "Generated",
        "Step",
        "entropy",
        "equal_parts",
        "given_partition",
        "growing",
        "margin",
        "of_logits",
        "reverse_process",
        "top_prob",
    ),
    "core.denoiser": ("Denoiser",),
    "core.layout": (
        "Layout",
        "next_layout",
    ),
    "core.method": (
        "METHODS",
        "Method",
    ),
    "core.objective": ("loss",),
    "core.order": (
        "any_order",
        "blockwise",
        "given",
        "left_to_right",
    ),
    "core.policies": (
        "PolicyInput",
        "adjacent",
        "decaying",
        "distant",
        "influence",
        "nearest",
        "random",
        "relevant",
    ),
    "data.datasets": ("make_data",),
    "data.loading": (
        "as_numpy",
        "as_tensors",
        "load_data",
    ),
    "data.splits": ("dataset",),
    "evaluation.evaluate": ("evaluate",),
    "evaluation.likelihood": ("nats_along_orders",),
    "evaluation.problems": ("solve",),
    "evaluation.report": ("results",),
    "model": (
        "Model",
        "ResultTable",
        "Samples",
        "load",
        "train",
    ),
    "network.check": ("check_network",),
    "network.fast": ("generate",),
    "network.hf": ("HuggingFaceDenoiser",),
    "network.likelihood": ("log_likelihood",),
    "network.transformer": ("Transformer",),
    "sharing.collator": ("DiffusionCollator",),
    "sharing.lm_eval": ("LatentTokensLM",),
    "sizes": (
        "SIZES",
        "Size",
    ),
    "tasks": (
        "Examples",
        "TASKS",
        "Task",
        "TaskBase",
        "Text",
    ),
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
