"""The module that exported model directories import: the adapter of `latent_tokens.sharing.hugging_face`."""

from latent_tokens.sharing.hugging_face import LatentTokensConfig, LatentTokensForMaskedLM

__all__ = ["LatentTokensConfig", "LatentTokensForMaskedLM"]
