"""Which decodings a method supports."""

from __future__ import annotations

from latent_tokens.core.blocks import block_of
from latent_tokens.core.decoding import Count, Decoding, blocks_of
from latent_tokens.core.methods import Method, name_of
from latent_tokens.core.order import is_left_to_right
from latent_tokens.core.policies import LatentPolicy, nearest
from latent_tokens.core.readout import check_left_shown


def check_decoding(method: Method, decoding: Decoding) -> None:
    """Raise ValueError, naming what to use, if the method cannot decode so."""
    check_num_latents(method, decoding.latents, decoding.off_distribution)
    name = named(method)
    if method.is_left_to_right and decoding.candidates != 1:
        k = getattr(decoding.candidates, "__name__", decoding.candidates)
        reason = "it decodes the next token"
        raise ValueError(
            f"candidates={k} is not supported by {name}: {reason}. Use candidates=1, or a mdm or scdm model."
        )
    reads_before = method.is_left_to_right and method.readout != "in_place"
    if reads_before and decoding.order is not None and not is_left_to_right(decoding.order):
        reason = "it decodes from left to right only"
        raise ValueError(
            f"order is not supported by {name}: {reason}. Use order=left_to_right, or a mdm or scdm model."
        )
    check_latent_policy(method, decoding.latent_policy)
    block = blocks_of(method, decoding)
    if block is not None and not isinstance(decoding.tokens_per_step, int):
        raise ValueError(
            f"tokens_per_step with blocks of {block}: a partition does not end steps at blocks. Use a number."
        )
    if block_of(method.attention) not in (None, block):
        raise ValueError(
            f"order=blockwise({block}) is not supported by {name}: it has blocks of "
            f"{block_of(method.attention)}. Use order=blockwise({block_of(method.attention)})."
        )
    if method.readout == "shifted" and decoding.tokens_per_step != 1:
        reason = "it predicts one token per step"
        tokens = decoding.tokens_per_step
        raise ValueError(
            f"tokens_per_step={tokens} is not supported by {name}: {reason}. Use tokens_per_step=1."
        )


def check_num_latents(method: Method, latents: Count | None, off_distribution: bool) -> None:
    """Raise ValueError if the method cannot decode with this number of latent tokens."""
    n = getattr(latents, "__name__", latents)
    is_fixed = method.latent_control == "fixed"
    own = (None, "all") if method.window is None else (None, "all", method.window - 1)
    if is_fixed and n not in own and not off_distribution:
        reason = "its number of latent tokens is fixed when it is trained"
        raise ValueError(
            f"latents={n} is not supported by {named(method)}: {reason}. "
            f"Use latents=all, a scdm or esolm model, or train {trainable_with(method, latents)}. "
            "Use off_distribution=True to allow it."
        )
    if is_off_distribution(method, latents):
        check_left_shown(method.readout, method.is_left_to_right, str(n))
    if method.latent_control == "none" and n is not None and n != 0:
        reason = "it has no latent tokens"
        raise ValueError(
            f"latents={n} is not supported by {named(method)}: {reason}. "
            "Use latents=0, or a scdm, esolm or ar-mtp model."
        )


def named(method: Method) -> str:
    """Return the name of a method in a message."""
    return "this method" if name_of(method) == "custom" else name_of(method)


def check_latent_policy(method: Method, policy: LatentPolicy) -> None:
    """Raise ValueError if the rule decides which masked tokens are latent tokens."""
    block = block_of(method.attention)
    if policy is not nearest and block is not None:
        raise ValueError(
            f"latent_policy={getattr(policy, '__name__', policy)} with attention=block_causal({block}): "
            "its latent tokens are those of the current block. Use latent_policy=nearest."
        )


def is_off_distribution(method: Method, latents: Count | None) -> bool:
    """Return whether n leaves out masked tokens that each input of the method had in training.

    Those of a window of N are N - 1 latent tokens.
    """
    if method.latent_control != "fixed" or latents is None or latents == "all":
        return False
    return method.window is None or callable(latents) or latents < method.window - 1


def trainable_with(method: Method, latents: Count | None) -> str:
    """Return the name of a method with the same order that can be trained for n latent tokens."""
    if not method.is_left_to_right:
        return "mdm-depth"
    return f"ar-mtp-window-{latents + 1}" if isinstance(latents, int) else "ar-mtp-window-N"
