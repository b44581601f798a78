"""The settings of `generate` in transformers."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Literal, TypedDict, Unpack, cast

import torch
from transformers import GenerationConfig, PretrainedConfig

from latent_tokens.checks import check_int
from latent_tokens.configs import OrderName, SamplingConfig
from latent_tokens.core.decoding import Decoding, check_decoding, equal_parts
from latent_tokens.core.method import Method
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.tasks import TASKS, Language, Text

IGNORED_SETTINGS = ("transformers_version", "return_dict_in_generate")


class GenerationSettings(TypedDict, total=False):
    """The settings of `generate`, with the names of transformers and diffusers."""

    num_latent_tokens: int | Literal["all"] | None  # latent tokens n per step
    candidates: int | Literal["all", "growing"] | None  # candidate set size k
    order: OrderName | None  # decoding order
    temperature: float | None  # temperature of the samples
    top_p: float | None  # nucleus of the samples
    tokens_per_step: int | None  # tokens decoded per step
    steps: int | None  # number of steps, instead of `tokens_per_step`
    seed: int | None  # seed of the samples
    num_return_sequences: int | None  # samples per row of the input
    do_sample: bool | None  # False is temperature 0
    off_distribution: bool | None  # True allows any n for a method whose n is fixed in training


SETTINGS = tuple(GenerationSettings.__annotations__)

APPEND_MASK = (
    "generate decodes each MASK of input_ids. Append as many: "
    "torch.nn.functional.pad(input_ids, (0, N), value=model.config.mask_token_id)."
)
HINTS = {"max_new_tokens": APPEND_MASK, "max_length": APPEND_MASK}  # settings that another call replaces


class LatentTokensGenerationConfig(GenerationConfig):
    """The settings of `generate`, with the names of transformers and diffusers.

    A setting that is None has the default of `latent-tokens sample`.

    Args:
        settings: those of `GenerationSettings`. Others of transformers are kept, and decoding refuses them.

    Example:
        >>> model.generate(input_ids, LatentTokensGenerationConfig(num_latent_tokens=4, candidates=8))
    """

    def __init__(self, **settings: Unpack[GenerationSettings]) -> None:
        others = {name: value for name, value in settings.items() if name not in SETTINGS}
        super().__init__(**others)  # type: ignore[no-untyped-call]
        for name in SETTINGS:
            setattr(self, name, settings.get(name))

    @property
    def settings(self) -> GenerationSettings:
        """The settings that decoding supports."""
        return cast(GenerationSettings, {name: getattr(self, name) for name in SETTINGS})

    def with_defaults(self, defaults: GenerationConfig | None) -> LatentTokensGenerationConfig:
        """Return these settings, with those of `defaults` instead of None.

        Raise ValueError if it has other settings.
        """
        stored = {} if defaults is None else defaults.to_diff_dict()
        others = sorted(set(stored) - {*SETTINGS, *IGNORED_SETTINGS})
        if others:
            hint = HINTS.get(others[0], f"Its settings are {', '.join(SETTINGS)}.")
            setting = f"generation_config.{others[0]}={stored[others[0]]}"
            raise ValueError(f"{setting}: no setting of this decoding. {hint}")
        merged = copy(self)
        for name in SETTINGS:
            if getattr(self, name) is None:
                setattr(merged, name, stored.get(name))
        return merged

    def decoding(self, method: Method, task: Language) -> Decoding:
        """Return the Decoding of these settings. Raise ValueError if the method does not support them."""
        # Settings that exclude each other.
        settings = self.settings
        temperature = settings["temperature"]
        if settings["steps"] is not None and settings["tokens_per_step"] is not None:
            raise ValueError(
                f"steps={settings['steps']} and tokens_per_step={settings['tokens_per_step']}: "
                "one follows from the other. Set one of them."
            )
        if settings["do_sample"] is False and temperature:
            raise ValueError(
                f"do_sample=False with temperature={temperature}: "
                "without sampling, the most likely token is chosen. Leave one out."
            )

        # Ranges that SamplingConfig does not check, under the names of this class.
        if settings["num_latent_tokens"] not in (None, "all"):
            check_int("num_latent_tokens", settings["num_latent_tokens"], 0)
        for name in ("steps", "num_return_sequences"):
            if settings[name] is not None:
                check_int(name, settings[name], 1)

        if settings["do_sample"] is False and temperature is None:
            temperature = 0.0
        config = SamplingConfig(
            latents=settings["num_latent_tokens"],
            candidates=settings["candidates"],
            order=settings["order"],
            tokens_per_step=settings["tokens_per_step"],
            temperature=temperature,
            top_p=settings["top_p"],
            seed=settings["seed"] or 0,
            off_distribution=bool(settings["off_distribution"]),
        )
        decoding = decoding_for(method, task, config)
        if settings["steps"] is not None:
            decoding = replace(decoding, tokens_per_step=equal_parts(settings["steps"]))
        check_decoding(method, decoding)
        return decoding


def known_task(config: PretrainedConfig) -> Language:
    """Return the task whose decoding defaults a model has, or None for a task of another package."""
    name = str((getattr(config, "task", None) or {}).get("name"))
    return Text() if name == Text.name else cast(Language, TASKS.get(name))


def check_settings(settings: GenerationSettings) -> None:
    """Raise TypeError for an argument of `generate` that is not a setting."""
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        hint = HINTS.get(unknown[0], f"Its settings are {', '.join(SETTINGS)}.")
        raise TypeError(f"{unknown[0]}: no argument of generate. {hint}")


def seed_from(seed: int | None, generator: torch.Generator | None) -> int:
    """Return the seed of the samples: the setting, one drawn from a generator, or 0 without either."""
    if generator is None:
        return seed or 0
    if seed is not None:
        raise ValueError(f"seed={seed} with a generator: the seed is drawn from it. Leave one out.")
    return int(torch.randint(1 << 62, (), generator=generator, device=generator.device))
