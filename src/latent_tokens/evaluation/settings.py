"""The settings of sampling by name: how a config becomes a `Decoding`, and how a row reports one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, cast

from latent_tokens.checks import block_in, function_name, refuse
from latent_tokens.configs import EvalConfig, NumLatents, SamplingConfig
from latent_tokens.core.confidence import Confidence, top_prob
from latent_tokens.core.decoding import (
    CONFIDENCES,
    DEFAULT_CANDIDATES,
    ORDERS,
    Count,
    Decoding,
    candidates_of,
    follows_order,
    growing,
    is_off_distribution,
    order_of,
)
from latent_tokens.core.method import Method, name_of
from latent_tokens.core.order import Order, block_of
from latent_tokens.core.remasking import short_form_of_remask
from latent_tokens.core.selection import RULES, AtMost, FixedCount, bare_rule, short_form
from latent_tokens.evaluation.rows import IF_SET, Row, entries, labeled
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import read_description
from latent_tokens.tasks import Language, Task, Text, Zebra

NONE: Mapping[str, Any] = MappingProxyType({})
SELECTIONS = tuple(RULES)
AS_THEY_ARE = (
    *("latents", "tokens_per_step", "refresh", "off_distribution", *SELECTIONS),
    *("t_max", "t_min", "remask_below", "remask_every", "extra_passes"),
)
"""The settings of a `Decoding` that are those of a config."""


def default_order(method: Method, task: Language) -> str:
    """Return left_to_right for methods that decode so, the task's order, or top_prob (appendix G.4)."""
    return "left_to_right" if method.is_left_to_right else getattr(task, "order", "top_prob")


def order_for(
    method: Method, task: Language, config: SamplingConfig, functions: Mapping[str, object] = NONE
) -> str:
    """Return the name of the decoding order: the config's, else the default.

    A rule of selection or a confidence of your own ranks candidates, so its default is not uniform.
    """
    default = default_order(method, task)
    if config.order is not None or default == "left_to_right":
        return config.order or default
    if config.entropy_bound is not None:
        return "entropy"
    ranks = has_rule(config, functions) or confidence_of(config, functions) is not None
    return "top_prob" if ranks and default == "uniform" else default


def with_own_order(
    method: Method, config: SamplingConfig, functions: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the functions with the method's own order, if it decodes its next token and none is set."""
    follows = not method.is_left_to_right and follows_order(method, Decoding())
    is_default = config.order is None and follows
    return {"order": method.order, **functions} if is_default else functions


def has_rule(config: SamplingConfig, functions: Mapping[str, object] = NONE) -> bool:
    """Return whether the predictions decide how many candidates a step decodes."""
    return "select" in functions or any(getattr(config, name) is not None for name in SELECTIONS)


def split_functions(settings: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (the settings by name, those that are functions for a field of `Decoding`).

    Raises:
        ValueError: a rule of selection or of remasking is no function.
    """
    fields_of = {field.name for field in fields(Decoding)} | {"tokens_per_step"}
    functions: dict[str, Any] = {
        name: value for name, value in settings.items() if name in fields_of and callable(value)
    }
    named = {name: value for name, value in settings.items() if name not in functions}
    for name, fix in (("select", "threshold=0.9"), ("remask", "remask_below=0.2")):
        if name in named:
            raise ValueError(f"{name}={named[name]}: must be a function. Use {fix}.")
    return named, functions


def decoding_for(
    method: Method, task: Language, config: SamplingConfig, functions: Mapping[str, Any] = NONE
) -> Decoding:
    """Return the `Decoding` of a config, with the defaults of the method and the task.

    The latent policy is left at nearest: `policy_for` returns the config's, which may need
    examples.

    Args:
        method: the method.
        task: the task, which has defaults.
        config: the settings.
        functions: your own functions by field of `Decoding`, which replace those of the config.

    Raises:
        ValueError: the method or the order does not support a setting.
    """
    functions = with_own_order(method, config, functions)
    order = order_for(method, task, config, functions)
    confidence = confidence_of(config, functions)
    check_named_order(config, confidence)
    is_ruled = has_rule(config, functions)
    k = growing if config.candidates == "growing" else cast(Count | None, config.candidates)
    if k is None and not is_adaptive(order) and not is_ruled:
        k = 1
    check_order(method, config, order, is_ruled)
    if confidence is not None and not is_adaptive(order) and not is_ruled:
        setting = f"confidence={function_name(confidence)} with order={order}"
        refuse(
            setting, "this order decodes its next token", "order=blockwise:N of a mdm or scdm model"
        )
    follows = "order" not in functions and not (
        is_adaptive(order) or is_ruled or method.is_left_to_right
    )
    counts = {
        name: functions.get(name, getattr(config, name)) for name in ("candidates", "latents")
    }
    length = task.length if isinstance(task, Task) else None  # that of a text is its data set's
    check_candidates(method, length, **counts, follows=order if follows else None)

    # Add the defaults of the task.
    named = None if "order" in functions else CONFIDENCES.get(order)
    settings = {
        **{name: getattr(config, name) for name in AS_THEY_ARE},
        "candidates": k,
        "order": schedule_of(order, method),
        "confidence": named if confidence is None else confidence,
        "confidence_noise": config.confidence_noise or 0,
        "drafts": config.drafts or 0,
    }
    for name in ("temperature", "top_p"):
        value = getattr(config, name)
        settings[name] = getattr(task, name, 1.0) if value is None else value
    if config.t_max is not None and config.temperature is None:
        settings["temperature"] = 1.0  # not the task's
    return Decoding(**{**settings, **functions})


def schedule_of(order: str, method: Method) -> Order | None:
    """Return the order of positions of a named order, None for the method's own."""
    if order == "uniform" and block_of(method.attention) is not None:
        return method.order
    return None if order in CONFIDENCES else ORDERS[order]


def check_order(method: Method, config: SamplingConfig, order: str, is_ruled: bool) -> None:
    """Raise ValueError if a method does not support an order, or an order does not use a rule."""
    if is_adaptive(order) and method.is_left_to_right:
        problem = "it decodes the next token"
        fix = "order=left_to_right, or a mdm or scdm model"
        refuse(f"order={order} is not supported by {name_of(method)}", problem, fix)
    if order == "uniform" and is_ruled:
        name = next((name for name in SELECTIONS if getattr(config, name) is not None), "select")
        setting = f"{name}={getattr(config, name, 'a function')} with order=uniform"
        refuse(setting, "this order decodes its next token", "order=top_prob")
    if config.entropy_bound is not None and order in CONFIDENCES and order != "entropy":
        setting = f"order={order} with entropy_bound={config.entropy_bound}"
        refuse(setting, "this rule decodes by entropy", "order=entropy, or leave it out")


def confidence_of(config: SamplingConfig, functions: Mapping[str, Any]) -> Confidence | None:
    """Return the confidence that is set: a function of your own, or that of the config by its name."""
    named = None if config.confidence is None else CONFIDENCES[config.confidence]
    return cast(Confidence | None, functions.get("confidence", named))


def check_named_order(config: SamplingConfig, confidence: Confidence | None) -> None:
    """Raise ValueError if the order is the name of another confidence than the one that is set."""
    named = CONFIDENCES.get(config.order or "")
    if named is not None and confidence not in (None, named):
        setting = f"order={config.order} with confidence={function_name(confidence)}"
        refuse(setting, "this order sets the confidence", "one of the two")


def check_candidates(
    method: Method, length: int | None, candidates: object, latents: object, follows: str | None
) -> None:
    """Raise ValueError if an order chooses no candidates, or all of them leave no latent tokens.

    As many candidates as positions are all of them. `follows` is the name of an order that decodes
    its next token. Numbers may be functions.
    """
    k, n = (function_name(count) if callable(count) else count for count in (candidates, latents))
    if k not in (None, 1) and follows is not None:
        fix = "candidates=1, or order=top_prob"
        refuse(f"candidates={k} with order={follows}", "this order decodes its next token", fix)
    has_latents = n is not None and n != 0 and method.latent_control != "none"
    is_all = k == "all" or (isinstance(k, int) and length is not None and k >= length)
    if is_all and has_latents and (n != "all" or method.latent_control == "free"):
        problem = "all masked tokens are candidates, so none is a latent token"
        fix = f"candidates={DEFAULT_CANDIDATES}, or latents=0"
        refuse(f"latents={n} with candidates={k}", problem, fix)


def is_adaptive(order: str) -> bool:
    """Return whether an order decodes the most confident of its candidates."""
    return order in CONFIDENCES or block_in(order) is not None


def for_puzzles(method: Method, config: SamplingConfig) -> SamplingConfig:
    """Return the config with the defaults of `latent-tokens solve`.

    By default all masked tokens are in the input, and the most likely token is taken.
    """
    latents = config.latents
    if latents is None and method.latent_control != "none" and config.candidates != "all":
        latents = "all"
    is_set = config.temperature is not None or config.t_max is not None
    temperature = config.temperature if is_set else 0.0
    return replace(config, latents=latents, temperature=temperature)


def check_policy(
    method: Method,
    config: SamplingConfig,
    latents: Sequence[NumLatents | Callable[[int], int] | None] = (),
) -> None:
    """Raise ValueError if a latent policy has no latent tokens to choose from.

    Args:
        method: the method.
        config: the settings with the policy.
        latents: the numbers n that it is used with. Empty is the method's own number.
    """
    name = config.latent_policy or "nearest"
    if name == "nearest":
        return
    is_fixed = method.latent_control == "none" or (
        method.latent_control == "fixed" and not config.off_distribution
    )
    if is_fixed:
        raise ValueError(
            f"latent_policy={name} is not supported by {name_of(method)}: "
            "its latent tokens cannot be chosen. Use a scdm or esolm model, or off_distribution=True."
        )
    if {method.default_latents if count is None else count for count in latents or (None,)} == {0}:
        raise ValueError(
            f"latent_policy={name} with latents=0: there are no latent tokens to choose. "
            "Use latents=4, or leave latent_policy out."
        )


def shown_latents(method: Method, decoding: Decoding) -> int | str:
    """Return the number of latent tokens that a row reports, at most what the window has room for.

    It is the name of the rule if the number follows one.
    """
    latents = method.default_latents if decoding.latents is None else decoding.latents
    if callable(latents):
        return function_name(latents)
    if method.window == "all":
        return latents
    sizes = (shown_candidates(method, decoding), getattr(decoding.select, "tokens", 1))
    most = method.window - max((size for size in sizes if isinstance(size, int)), default=1)
    return most if latents == "all" else min(latents, most)


def shown_candidates(method: Method, decoding: Decoding) -> int | str:
    """Return the number of candidates that a row reports, at most the window, or the name of its rule."""
    candidates = candidates_of(method, decoding)
    if callable(candidates):
        return function_name(candidates)
    if method.window == "all":
        return candidates
    return method.window if candidates == "all" else min(candidates, method.window)


def shown_order(method: Method, decoding: Decoding) -> str:
    """Return the order of a decoding with functions: that of positions, the confidence, or both.

    Blocks decode by `top_prob` unless another confidence is named, or an entropy bound decides.
    """
    order = order_of(method, decoding)
    block = block_of(order)
    names = [f"blockwise:{block}"] if block is not None else []
    if follows_order(method, decoding):
        names = [function_name(order)]
    confidence = decoding.confidence if block is None else decoding.ranking
    default = None if block is None else top_prob
    if confidence not in (None, default):
        names.append(function_name(confidence))
    if names:
        return " ".join(names)
    is_uniform = shown_candidates(method, decoding) == 1
    return "uniform" if is_uniform else function_name(decoding.ranking)


def order_of_row(
    method: Method,
    task: Language,
    config: SamplingConfig,
    decoding: Decoding,
    functions: Mapping[str, Any] = NONE,
) -> str:
    """Return the order of a row: its name, or how functions and a confidence decode."""
    functions = with_own_order(method, config, functions)
    is_named = functions.keys().isdisjoint(("order", "confidence", "select"))
    has_blocks = block_of(order_of(method, decoding)) is not None
    if is_named and config.confidence is None and not has_blocks:
        return order_for(method, task, config)
    return shown_order(method, decoding)


def row_settings(
    method: Method,
    task: Language,
    config: SamplingConfig,
    decoding: Decoding,
    functions: Mapping[str, Any] = NONE,
) -> Row:
    """Return the settings that a row was decoded with. `functions` are as for `decoding_for`."""
    settings = Row(
        task=task.name,
        method=name_of(method),
        order=order_of_row(method, task, config, decoding, functions),
        latents=shown_latents(method, decoding),
        candidates=shown_candidates(method, decoding),
    )
    select = decoding.select
    size = select.most if isinstance(select, AtMost) else getattr(select, "tokens", None)
    if size not in (None, 1):
        settings["tokens_per_step"] = function_name(size) if callable(size) else size
    rule = bare_rule(select)
    short = short_form(rule)
    settings |= cast(Row, short)
    if not short and not isinstance(rule, FixedCount):
        settings["select"] = function_name(rule)
    defaults = {field.name: field.default for field in fields(Decoding)}
    changed_ones = {name: getattr(decoding, name) for name in IF_SET if name in defaults}
    changed_ones |= {"remask": None, **short_form_of_remask(decoding.remask)}
    settings |= cast(
        Row, {name: value for name, value in changed_ones.items() if value != defaults.get(name)}
    )
    if is_off_distribution(method, decoding.latents):
        settings["off_distribution"] = True
    return settings


def label(method: Method, decoding: Decoding) -> str:
    """Return the label of a row's progress bar."""
    is_off = is_off_distribution(method, decoding.latents)
    latents = labeled(shown_latents(method, decoding), is_off)
    return f"{name_of(method)} n={latents} k={shown_candidates(method, decoding)}"


NUM_ZEBRA = 1_280  # test puzzles, from the first


def with_protocol(
    net: Transformer, task: Language, config: EvalConfig, functions: Mapping[str, object] = NONE
) -> EvalConfig:
    """Return the config with what its protocol sets. Without a protocol it is returned as it is.

    The protocol "paper" takes 8 candidates in every adaptive order, the first 1,280 problems of
    Zebra, uniform order for 36x36 boards, sequences with the paper's padding, and EMA weights (D-39,
    the paper's protocol). An order that is not adaptive has no candidates to set.

    Raises:
        ValueError: the model learned text or sequences without padding, or was trained without EMA
            weights. Or a function decodes otherwise.
    """
    if config.protocol is None:
        return config
    own = functions.keys() & {"order", "confidence", "candidates", "select"}
    own |= set() if config.confidence is None else {"confidence"}
    if own:
        problem = "the protocol sets how candidates are decoded"
        refuse(f"protocol=paper with {min(own)}", problem, "one of the two")
    if isinstance(task, Text):
        raise ValueError("protocol=paper: is for puzzles and boards. Leave it out for text.")
    padding = getattr(task, "padding", "none")
    if padding != "paper":
        raise ValueError(
            f"protocol=paper: the model learned {task.name} with padding={padding}. "
            "Train it on a data set made with padding=paper, or leave the protocol out."
        )
    description = {} if net.folder is None else read_description(net.folder, "config.json", "run")
    if entries(description, "training").get("ema") == 0:
        raise ValueError(
            "protocol=paper: the model was trained without EMA weights (ema=0). "
            "Train it with ema=0.9999, or leave the protocol out."
        )
    if config.order is None and task.name == "sudoku-36" and not net.method.is_left_to_right:
        config = replace(config, order="uniform")
    is_ranked = is_adaptive(order_for(net.method, task, config))
    candidates = (DEFAULT_CANDIDATES,) if is_ranked else None
    num_samples = NUM_ZEBRA if isinstance(task, Zebra) else None
    return replace(config, protocol=None, candidates=candidates, num_samples=num_samples)
