"""A language model with the tokens of its text: opened by name, and scored on continuations."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import nn

from latent_tokens.checkpoints.directory import check_fits, from_pretrained, learned_text
from latent_tokens.checkpoints.files import check_attributes, find
from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checkpoints.hugging_face import FILES, is_of_transformers, read_model
from latent_tokens.checks import first_line
from latent_tokens.core.denoiser import Denoiser, unwrap
from latent_tokens.core.method import Method
from latent_tokens.evaluation.likelihood import (
    Continuation,
    ContinuationScore,
    LikelihoodSettings,
    score_continuations,
)
from latent_tokens.network.check import eval_mode
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.tasks import Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


ChatMessage = dict[str, str]


class Codec(Protocol):
    """Text as the tokens that a model receives."""

    @property
    def name(self) -> str:
        """The name of the tokenizer."""

    @property
    def starts_inputs(self) -> bool:
        """Whether every input begins with `start`, as in training."""

    @property
    def start(self) -> int:
        """The token in front of a text."""

    @property
    def end(self) -> int:
        """The token that ends a text."""

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        """Return the tokens of a text. With None, the tokenizer decides whether special tokens are added."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""

    def chat(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        """Return a chat as one text. Raise ValueError if the model has no chat template."""


@dataclass(frozen=True)
class TextCodec:
    """The tokens of our text task. Each input begins with an end of document, as in training."""

    task: Text
    starts_inputs = True

    @property
    def name(self) -> str:
        return f"{self.task.tokenizer} ({self.task.fingerprint})"

    @property
    def start(self) -> int:
        return self.task.coder.end

    @property
    def end(self) -> int:
        return self.task.coder.end

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        (ids,) = self.task.coder.encode([text])
        return [self.start, *ids.tolist()] if add_special_tokens else ids.tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return self.task.coder.decode(ids)

    def chat(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        raise ValueError("apply_chat_template: this model has no chat template. Leave it out.")


@dataclass(frozen=True)
class TransformersCodec:
    """The tokens of a tokenizer of transformers, as the class `hf` of lm-eval uses it.

    Raises:
        ValueError: the tokenizer has no token that ends a text.
    """

    tokenizer: PreTrainedTokenizerBase
    starts_inputs = False

    def __post_init__(self) -> None:
        if self.tokenizer.eos_token_id is None:
            raise ValueError("tokenizer: has no EOS token. Set tokenizer.eos_token.")

    @property
    def name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    @property
    def start(self) -> int:
        bos = self.tokenizer.bos_token_id
        return int(self.end if bos is None else bos)

    @property
    def end(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        if add_special_tokens is None and text.startswith(str(self.tokenizer.decode([self.start]))):
            add_special_tokens = False
        settings = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return [int(token) for token in self.tokenizer.encode(text, **settings)]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def chat(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        if not self.tokenizer.chat_template:
            raise ValueError("apply_chat_template: this model has no chat template. Leave it out.")
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )


def read_codec(folder: Path) -> TransformersCodec:
    """Return the tokenizer of a directory of transformers. Raise ValueError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # of files that others wrote: anything
        raise ValueError(
            f"{folder}: its tokenizer cannot be read ({first_line(error)}). Copy it again."
        ) from None
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"{folder}: its tokenizer has no EOS token. Name eos_token in tokenizer_config.json."
        )
    return TransformersCodec(tokenizer)


Pair = tuple[list[int], list[int]]
"""The tokens of a context and of its continuation."""


@dataclass(frozen=True)
class TextModel:
    """A network with its method, and the tokens of its text."""

    net: nn.Module
    codec: Codec
    method: Method
    max_length: int

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.net.parameters()).device

    @property
    def feeds_first(self) -> bool:
        """Whether the first token of a text is fed only: to an autoregressive model of transformers.

        Its first slot receives it instead of BOS, so that the input is that of the model itself.
        """
        inner = unwrap(self.net)
        is_shifted = isinstance(inner, HuggingFaceDenoiser) and inner.readout == "shifted"
        return is_shifted and isinstance(self.codec, TransformersCodec)

    @property
    def rolling_length(self) -> int:
        """The number of tokens that a window of a long text predicts, after one token of context."""
        return self.max_length if self.feeds_first else self.max_length - 1 - self.codec.starts_inputs

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        """Return the tokens of a text, as the codec does. Raise ValueError if the network lacks one."""
        tokens = self.codec.encode(text, add_special_tokens)
        num_tokens = cast(int, cast(nn.Module, unwrap(self.net)).vocab_size)
        if max(tokens, default=0) >= num_tokens:
            problem = f"makes token {max(tokens):,}, and the model has {num_tokens:,} tokens"
            raise ValueError(f"tokenizer: {problem}. Use the one that the model was trained with.")
        return tokens

    def fitted(self, context: Sequence[int], num_new: int) -> list[int]:
        """Return the last tokens of a context, so that it and the new tokens fit into the network.

        It keeps its first token if every input begins so.

        Raises:
            ValueError: the new tokens leave no room for a context.
        """
        room = self.max_length + self.feeds_first - num_new
        if room < 1 + self.codec.starts_inputs:
            raise ValueError(
                f"{num_new:,} tokens after the context: the model has {self.max_length:,} positions. "
                "Use shorter texts."
            )
        if not self.codec.starts_inputs:
            return list(context[-room:])
        start = self.codec.start
        rest = context[1:] if context[:1] == [start] else context
        return [start, *rest[max(0, len(rest) + 1 - room) :]]

    def fed_with(self, first: int | None) -> nn.Module:
        """Return the network, its first slot receiving a token instead of BOS. It shares the weights."""
        if first is None:
            return self.net
        fed = copy.copy(cast(HuggingFaceDenoiser, unwrap(self.net)))
        fed.bos_id = first
        return fed

    def by_first(self, contexts: Iterable[Sequence[int]]) -> dict[int | None, list[int]]:
        """Return the indices of contexts by the token that is fed first, None if there is none."""
        groups: dict[int | None, list[int]] = defaultdict(list)
        for index, context in enumerate(contexts):
            groups[context[0] if self.feeds_first else None].append(index)
        return groups


def score_pairs(
    model: TextModel,
    pairs: Sequence[Pair],
    settings: LikelihoodSettings,
    batch_size: int,
    report: Callable[[int], None] = lambda done: None,
) -> list[ContinuationScore]:
    """Return the likelihood of each continuation given its context. Raise as `score_continuations`.

    Pair i has the orders of (seed, i). A context that is too long loses its first tokens.
    """
    contexts = [model.fitted(context, len(tokens)) for context, tokens in pairs]
    scores: dict[int, ContinuationScore] = {}
    for first, indices in model.by_first(contexts).items():
        continuations = [
            Continuation(contexts[index][model.feeds_first :], pairs[index][1], index) for index in indices
        ]
        net = model.fed_with(first)
        with eval_mode(cast(Denoiser, net)):
            group = score_continuations(
                net,
                model.method,
                continuations,
                settings,
                max_length=model.max_length,
                device=model.device,
                batch_size=batch_size,
                report=report,
            )
        scores |= zip(indices, group, strict=True)
    return [scores[index] for index in range(len(pairs))]


def with_codec(net: nn.Module, codec: Codec) -> TextModel:
    """Return a network with the tokens of its text. Raise ValueError if it lacks an attribute."""
    inner = cast(nn.Module, unwrap(net))
    check_attributes(inner)
    return TextModel(net, codec, cast(Method, inner.method), cast(int, inner.max_length))


def open_model(
    model: str | Path | nn.Module,
    tokenizer: Text | PreTrainedTokenizerBase | None,
    base: str | Path | None = None,
) -> TextModel:
    """Return the model of a path or a name, or a network with its tokenizer.

    `base` is the model that a LoRA adapter belongs to, as for `from_pretrained`.

    Raises:
        ValueError: the model cannot be read, or the tokenizer is missing or not needed.
    """
    if not isinstance(model, nn.Module):
        if tokenizer is not None:
            raise ValueError("tokenizer: a model of a path or a name has its own. Leave it out.")
        return read_text_model(model, base)
    if tokenizer is None:
        raise ValueError(
            "tokenizer=None: it is not part of a network. Pass its Text, or a tokenizer of transformers."
        )
    codec = TextCodec(tokenizer) if isinstance(tokenizer, Text) else TransformersCodec(tokenizer)
    return with_codec(model, codec)


def read_text_model(folder_or_name: str | Path, base: str | Path | None = None) -> TextModel:
    """Return the language model of a path or a name, on the CPU.

    A directory of transformers is opened as it is, as an autoregressive model (`arm`).

    Raises:
        ValueError: the directory is missing or corrupt, or its model did not learn text.
    """
    folder = find(folder_or_name, partial(fetch, files=(*FILES, "*.jinja")))
    if is_of_transformers(folder):
        if base is not None:
            raise ValueError(f"base={base}: {folder} has no LoRA adapter. Leave base out.")
        model = read_model(folder)
        if type(model).__name__.endswith("ForMaskedLM"):
            problem = "is a masked language model, which does not predict the next token"
            fix = f"Train it first (latent-tokens train text METHOD --from {folder})"
            raise ValueError(f"{folder}: {problem}. {fix}.")
        net = HuggingFaceDenoiser(model, None, readout="shifted").eval()
        return with_codec(net, read_codec(folder))
    ours = from_pretrained(folder, base=base)
    task = learned_text(folder)
    check_fits(ours, task)
    return with_codec(ours, TextCodec(task))
