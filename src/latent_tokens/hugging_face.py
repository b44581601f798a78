"""The module that exported model directories import: it never moves."""

from latent_tokens.hf.modeling_latent_tokens import LatentTokensConfig, LatentTokensForMaskedLM

__all__ = ["LatentTokensConfig", "LatentTokensForMaskedLM"]
