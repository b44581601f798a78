"""A method by name, and as config.json stores it: with its functions by name."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any, cast

from latent_tokens.checkpoints.files import Entries
from latent_tokens.core import attention, order
from latent_tokens.core.attention import BlockCausal
from latent_tokens.core.method import METHODS, Method, depth_text
from latent_tokens.core.order import Blockwise
from latent_tokens.plugins import installed, is_dotted, load_plugin
from latent_tokens.storage import Json

STORED_RULES = {
    rule.__name__: rule
    for rule in (
        attention.bidirectional,
        attention.independent,
        attention.semi_causal,
        attention.causal,
    )
}
STORED_ORDERS = {rule.__name__: rule for rule in (order.any_order, order.left_to_right)}
BUILT_IN = cast(dict[str, dict[str, Any]], {"order": STORED_ORDERS, "attention": STORED_RULES})
MAY_BE_ALL = ("window", "latents")
LOADED: dict[str, Any] = {}
"""The functions of methods that `load_method` loaded, as module:name.attention."""
TYPED: dict[str | None, str] = {}
"""The typed name of each of these methods, by its own."""


def load_method(name: str) -> Method:
    """Return the method of a name: of METHODS, an installed package, or your module:name.

    Models with its functions can then be saved and loaded. Its `name` is the name unless it has
    one.

    Args:
        name: the name, or module:name.

    Raises:
        ValueError: there is no such method, or it cannot be imported.

    Example:
        >>> load_method("scdm") == METHODS["scdm"]
        True
    """
    if not is_dotted(name) and name not in installed("method"):
        return METHODS[name]
    method = load_plugin("method", name)
    if not isinstance(method, Method):
        fix = "Name a Method, such as replace(METHODS['scdm'], window=4)."
        raise ValueError(f"method={name}: has the type {type(method).__name__}. {fix}")
    for field, known in BUILT_IN.items():
        if getattr(method, field) not in known.values():
            LOADED[f"{name}.{field}"] = getattr(method, field)
    method = method if method.name is not None else replace(method, name=name)
    TYPED[method.name] = name
    return method


def method_to(method: Method) -> dict[str, Json]:
    """Return a method's fields, its functions by name. Raise ValueError if one cannot be stored.

    Fields of later versions, depth, masked_slots and name, are left out at their default. A window
    or number of latents that is all is null.
    """
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    values |= {name: None for name in MAY_BE_ALL if values[name] == "all"}
    values["depth"] = depth_text(method.depth)
    later = {"depth": "all", "masked_slots": "in_order", "name": None}
    row = {
        name: value for name, value in values.items() if name not in later or value != later[name]
    }
    for field, known in BUILT_IN.items():
        function = row[field]
        names = {**known, **LOADED}
        equal = [name for name, other in names.items() if other == function]
        # Of methods that share a function, a command opens the model by the name of its own.
        own = f"{TYPED.get(method.name)}.{field}"
        stored = own if own in equal else next(iter(equal), None)
        if isinstance(function, (Blockwise, BlockCausal)):
            stored = function.__name__
        if stored is None:
            given = getattr(function, "__name__", function)
            fix = "Load the method with load_method('module:name'), or save the state_dict yourself"
            raise ValueError(f"{field}={given}: only {', '.join(known)} can be saved. {fix}.")
        row[field] = stored
    return row


def method_from(row: Entries) -> Method:
    """Return the Method of the entries that `method_to` returns."""
    check_loaded(row)
    functions = {
        field: parametrized(row[field]) or {**known, **LOADED}[row[field]]
        for field, known in BUILT_IN.items()
    }
    all_of = {name: "all" for name in MAY_BE_ALL if name in row and row[name] is None}
    depth = {"depth": parsed_depth(row["depth"])} if "depth" in row else {}
    return Method(**{**row, **functions, **all_of, **depth})


def parsed_depth(text: str) -> Any:
    """Return the depth of a text such as uniform:0.5. One that is none stays, and `Method` refuses it."""
    kind, _, share = text.partition(":")
    return (kind, float(share)) if re.fullmatch(r"\d*\.?\d+", share) else text


def parametrized(name: str) -> Blockwise | BlockCausal | None:
    """Return the order or the rule with a name such as "block_causal(8)", or None for another name."""
    match = re.fullmatch(r"(blockwise|block_causal)\(([1-9][0-9]*)\)", name)
    if match is None:
        return None
    return Blockwise(int(match[2])) if match[1] == "blockwise" else BlockCausal(int(match[2]))


def check_loaded(row: Entries) -> None:
    """Raise ValueError if a stored method has a function of a module whose name was not typed.

    The functions of an installed package are loaded.
    """
    for field in BUILT_IN:
        stored = str(row[field])
        if not stored.endswith(f".{field}") or stored in LOADED:
            continue
        method = stored.removesuffix(f".{field}")
        if method not in installed("method"):
            problem = "is code of another module, and opening a model imports no code"
            fix = f"Add --method {method} where a command has it. In Python call load_method first"
            raise ValueError(f"{field} {stored} {problem}. {fix}.")
        load_method(method)
