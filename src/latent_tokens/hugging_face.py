"""The module that exported model directories import: the adapter of `latent_tokens.sharing.hugging_face`."""

from typing import TYPE_CHECKING, Any

from latent_tokens.sharing.hugging_face import LatentTokensConfig, LatentTokensForMaskedLM

if TYPE_CHECKING:
    from latent_tokens.sharing.trainer import LatentTokensTrainer

__all__ = ["LatentTokensConfig", "LatentTokensForMaskedLM", "LatentTokensTrainer"]


def __getattr__(name: str) -> Any:
    if name != "LatentTokensTrainer":  # a model is opened without the Trainer, which takes seconds to import
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from latent_tokens.sharing.trainer import LatentTokensTrainer

    return LatentTokensTrainer
