"""The requests of the page. Their settings of sampling are those of `SamplingConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.record import DecodeRequest
from latent_tokens.web.curve import Curve
from latent_tokens.web.model_cache import ModelCache

M = TypeVar("M", bound=BaseModel)

SETTINGS = frozenset(field.name for field in dataclasses.fields(SamplingConfig))
MAX_PUZZLE = 16_000  # characters; a board of 36x36 has 1,296 cells


def with_settings(*names: str) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that adds settings of `SamplingConfig`, with their types and defaults."""
    hints = get_type_hints(SamplingConfig)
    defaults = {field.name: field.default for field in dataclasses.fields(SamplingConfig)}
    fields: dict[str, Any] = {name: (hints[name], defaults[name]) for name in names}  # as pydantic types them

    def add(question: type[M]) -> type[M]:
        return create_model(
            question.__name__,
            __base__=question,
            __module__=question.__module__,
            __doc__=question.__doc__,
            **fields,
        )

    return add


def sampling_of(question: BaseModel) -> SamplingConfig:
    """Return the settings of a request. Raise ValueError if one is out of range."""
    return SamplingConfig(**question.model_dump(include=set(SETTINGS)))


class Puzzle(BaseModel):
    """A puzzle for a model."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=1_000)
    puzzle: str = Field(max_length=MAX_PUZZLE)


@with_settings("latents", "candidates", "order", "temperature", "seed", "off_distribution", "refresh")
class Question(Puzzle):
    """A puzzle and the settings to decode it with.

    Omitted settings have the defaults of `latent-tokens solve`.
    """

    def to_request(self, models: ModelCache) -> DecodeRequest:
        """Load the model if necessary and return the request. Raise ValueError if it is not possible."""
        model = models.model(self.model)
        return DecodeRequest(model, model.task.encode(self.puzzle), sampling_of(self))


@with_settings("candidates", "order", "seed")
class CurveQuestion(BaseModel):
    """The query of /api/curve."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=1_000)
    count: int = 200

    def to_curve(self, models: ModelCache) -> Curve:
        """Load the model if necessary and return the curve. Raise ValueError if it is not possible."""
        return Curve(models.model(self.model), self.count, sampling_of(self))


class MaskQuestion(BaseModel):
    """The query of /api/masks."""

    model_config = ConfigDict(extra="forbid")
    method: str = Field(max_length=100)
    length: int = 8
    clean: int = 3
    candidates: int = 1
    latents: int | None = None
