"""A language model with the tokens of its text: opened by name, and scored on continuations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from latent_tokens.checkpoints.files import find
from latent_tokens.checkpoints.learned import check_attributes, check_fits, learned_text
from latent_tokens.checks import first_line, refuse
from latent_tokens.core.denoiser import Denoiser, unwrap, vocab_end
from latent_tokens.core.method import Method
from latent_tokens.data.dialogues import chat_tokenizer
from latent_tokens.evaluation.likelihood import (
    Continuation,
    ContinuationScore,
    LikelihoodSettings,
    score_continuations,
    suffix_of,
)
from latent_tokens.hf.directory import from_pretrained
from latent_tokens.hf.language_models import HuggingFaceDenoiser, special_tokens
from latent_tokens.hf.reading import BASE_FILES, read_model
from latent_tokens.hub import fetch
from latent_tokens.network.check import eval_mode
from latent_tokens.storage import kind_of
from latent_tokens.tasks import Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Pair = tuple[list[int], list[int]]
"""The tokens of a context and of its continuation."""


@dataclass(frozen=True)
class Codec:
    """Text as the tokens that a model receives."""

    name: str
    start: int  # the token in front of a text
    end: int  # the token that ends a text
    # None: the tokenizer decides about special tokens
    encode: Callable[[str, bool | None], list[int]]
    decode: Callable[[Sequence[int]], str]  # without special tokens
    # None: each input begins with `start`, as in training
    tokenizer: PreTrainedTokenizerBase | None = None
    # That of our text task, if it has a chat template
    chat: PreTrainedTokenizerBase | None = None


def text_codec(task: Text) -> Codec:
    """Return the tokens of our text task. Each input begins with an end of document."""
    coder = task.coder

    def encode(text: str, add_special_tokens: bool | None) -> list[int]:
        ids: list[int] = coder.encode([text])[0].tolist()
        return [coder.end, *ids] if add_special_tokens else ids

    name = f"{task.tokenizer} ({task.fingerprint})"
    return Codec(name, coder.end, coder.end, encode, coder.decode, chat=chat_tokenizer(task))


def transformers_codec(tokenizer: PreTrainedTokenizerBase) -> Codec:
    """Return the tokens of a tokenizer of transformers, as the class `hf` of lm-eval uses it."""
    if tokenizer.eos_token_id is None:
        problem = f"the tokenizer {tokenizer.name_or_path} names no eos_token"
        raise ValueError(f"{problem}. Set it in its tokenizer_config.json.")
    end = int(tokenizer.eos_token_id)
    start = end if tokenizer.bos_token_id is None else int(tokenizer.bos_token_id)
    begin = str(tokenizer.decode([start]))

    def encode(text: str, add_special_tokens: bool | None) -> list[int]:
        if add_special_tokens is None and text.startswith(begin):
            add_special_tokens = False
        settings = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return [int(token) for token in tokenizer.encode(text, **settings)]

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True))

    name = str(tokenizer.name_or_path).replace("/", "__")
    return Codec(name, start, end, encode, decode, tokenizer)


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
        return is_shifted and self.codec.tokenizer is not None

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a text: the codec's, and those of an autoregressive model's config.

        A chat model may end a turn with another token than that of its tokenizer.
        """
        ends: set[int | None] = {self.codec.end}
        if self.feeds_first:
            model = cast(HuggingFaceDenoiser, unwrap(self.net)).model
            for config in (model.config, model.generation_config):
                ends.update(special_tokens(config)["eos"])
        return frozenset(end for end in ends if end is not None)

    def encode(self, text: str, add_special_tokens: bool | None) -> list[int]:
        """Return the tokens of a text. Raise ValueError if the network lacks one of them."""
        tokens = self.codec.encode(text, add_special_tokens)
        end = vocab_end(unwrap(self.net))
        if tokens and max(tokens) >= end:
            problem = f"the network has {end:,} tokens"
            fix = "a model whose embeddings are resized: resize_token_embeddings(len(tokenizer))"
            refuse(f"token {max(tokens)} of the tokenizer {self.codec.name}", problem, fix)
        return tokens

    @property
    def starts_inputs(self) -> bool:
        """Whether every input begins with the token in front of a text, as in training."""
        return self.codec.tokenizer is None

    def rolling_length(self, suffix: int) -> int:
        """Return how many tokens a window of a long text predicts, after one token of context.

        A suffix of masked positions follows each window.
        """
        length = self.max_length - suffix
        return max(1, length if self.feeds_first else length - 1 - self.starts_inputs)

    def fitted(self, context: Sequence[int], num_new: int, suffix: int = 0) -> list[int]:
        """Return the last tokens of a context: it, the new tokens and a suffix fit into the network.

        It keeps its first token if every input begins so. Raises ValueError if there is no room for
        it.
        """
        room = self.max_length + self.feeds_first - num_new - suffix
        if room < 1 + self.starts_inputs:
            after = f"{num_new:,} tokens"
            fix = "Use shorter texts"
            if suffix:
                after += f" and a suffix of {suffix:,} masked positions"
                fix += ", or suffix=0"
            problem = f"the model has {self.max_length:,} positions"
            raise ValueError(f"{after} after the context: {problem}. {fix}.")
        if not self.starts_inputs:
            return list(context[-room:])
        start = self.codec.start
        rest = context[1:] if context[:1] == [start] else context
        return [start, *rest[max(0, len(rest) + 1 - room) :]]

    def by_first(self, contexts: Iterable[Sequence[int]]) -> Iterator[tuple[nn.Module, list[int]]]:
        """Yield the network in eval mode for some contexts, with their indices.

        Contexts of one network have the same first token, if it is fed in place of BOS. Weights are
        shared.
        """
        groups: dict[int | None, list[int]] = defaultdict(list)
        for index, context in enumerate(contexts):
            groups[context[0] if self.feeds_first else None].append(index)
        for first, indices in groups.items():
            net = self.net
            if first is not None:
                fed = copy(cast(HuggingFaceDenoiser, unwrap(net)))
                fed.bos_id = first
                net = fed
            with eval_mode(cast(Denoiser, net)):
                yield net, indices


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
    suffix = suffix_of(model.method, settings)
    contexts = [model.fitted(context, len(tokens), suffix) for context, tokens in pairs]
    scores: dict[int, ContinuationScore] = {}
    for net, indices in model.by_first(contexts):
        continuations = [
            Continuation(contexts[index][model.feeds_first :], pairs[index][1], index)
            for index in indices
        ]
        group = score_continuations(
            net,
            model.method,
            continuations,
            settings,
            device=model.device,
            batch_size=batch_size,
            report=report,
        )
        scores |= zip(indices, group, strict=True)
    return [scores[index] for index in range(len(pairs))]


def open_model(
    model: str | Path | nn.Module,
    tokenizer: Text | PreTrainedTokenizerBase | None = None,
    base: str | Path | None = None,
) -> TextModel:
    """Return the language model of a path or a name, or a network with its tokenizer.

    A directory of transformers is opened as it is, as an autoregressive model (`arm`). `base` is
    the model that a LoRA adapter belongs to, as for `from_pretrained`.

    Raises:
        ValueError: the model cannot be read or did not learn text, or the tokenizer of a network is
            missing.
    """
    if isinstance(model, nn.Module):
        net = model
        if tokenizer is None:
            fix = "pass the Text of the network, or a tokenizer of transformers."
            raise ValueError(f"tokenizer=None: {fix}")
    else:
        folder = find(model, partial(fetch, files=(*BASE_FILES, "*.jinja")))
        if kind_of(folder) == "transformers":
            if base is not None:
                raise ValueError(f"base={base}: {folder} has no LoRA adapter. Leave base out.")
            net, tokenizer = open_autoregressive(folder)
        else:
            net = from_pretrained(folder, base=base)
            tokenizer = learned_text(folder)
            check_fits(net, tokenizer)
    codec = text_codec(tokenizer) if isinstance(tokenizer, Text) else transformers_codec(tokenizer)
    inner = cast(nn.Module, unwrap(net))
    check_attributes(inner)
    return TextModel(net, codec, cast(Method, inner.method), cast(int, inner.max_length))


def open_autoregressive(folder: Path) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """Return the model of a directory of transformers and its tokenizer.

    Raise ValueError if it is a masked language model.
    """
    from transformers import AutoTokenizer

    model = read_model(folder)
    if type(model).__name__.endswith("ForMaskedLM"):
        problem = "is a masked language model, which does not predict the next token"
        fix = f"Train it first (latent-tokens train text METHOD --from {folder})"
        raise ValueError(f"{folder}: {problem}. {fix}.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # what a corrupt file raises differs
        problem = f"has no tokenizer that can be read ({first_line(error)})"
        raise ValueError(f"{folder}: {problem}. Save its tokenizer there, too.") from None
    return HuggingFaceDenoiser(model, None, readout="shifted").eval(), tokenizer
