"""The arguments of `generate`, checked: each mistake gets a line that says what to write."""

from __future__ import annotations

from torch import Tensor

from latent_tokens.core.methods import METHODS, Method


def check_method(net: object, method: object) -> Method:
    """Return the method, by default that of the net.

    Raises:
        ValueError: it is not a `Method`, or the net has none.
    """
    if method is None:
        method = getattr(net, "method", None)
        if method is None:
            raise ValueError("method=None: the net has no method. Use one of METHODS.")
    if isinstance(method, Method):
        return method
    if isinstance(method, str) and method in METHODS:
        raise ValueError(f"method={method}: must be a Method. Use METHODS[{method!r}].")
    fix = "Use generate(net, net.method, tokens, known), or load(NAME).generate(PROMPT)."
    raise ValueError(f"method={type(method).__name__}: must be a Method. {fix}")


def check_tensor(name: str, value: object) -> Tensor:
    """Return a tensor. Raise ValueError if it is not one."""
    if isinstance(value, Tensor):
        return value
    problem = f"{name}={type(value).__name__}: must be a tensor"
    if value is None:
        raise ValueError(f"{problem}. Use generate(net, net.method, tokens, known).")
    raise ValueError(f"{problem}. Use torch.as_tensor, or load(NAME).generate(PROMPT).")
