"""A model of lm-eval, the evaluation harness of EleutherAI, with exact likelihoods along decoding orders."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from latent_tokens.checks import check_choice, check_int
from latent_tokens.configs import ConfidenceName, NumCandidates
from latent_tokens.core.decoding import Decoding, check_decoding, growing, is_off_distribution
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import name_of
from latent_tokens.core.order import is_left_to_right
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.likelihood import (
    Continuation,
    ContinuationScore,
    LikelihoodSettings,
    orders_of,
    padded,
    suffix_of,
)
from latent_tokens.evaluation.settings import SELECTIONS
from latent_tokens.harness.text_model import Pair, TextModel, open_model, score_pairs
from latent_tokens.network.fast import generate
from latent_tokens.storage import Json
from latent_tokens.tasks import Text

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm  # type: ignore[import-untyped]
except ImportError as error:
    name = str(error.name).partition(".")[0]
    fix = "Install the extra lm-eval: pip install 'latent-tokens[lm-eval]'"
    raise ImportError(f"{name} is not installed. {fix}", name=name) from None

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

AUTO_BATCH_SIZE = 8
DEFAULT_MAX_TOKENS = 256  # as in lm-eval, or half of the positions of a shorter model
SUPPORTED = ("until", "do_sample", "temperature", "top_p", "max_gen_toks")


@dataclass
class LikelihoodTotal:
    """The sum over requests of their log-probabilities along each order."""

    nats: list[float] = field(default_factory=list)  # per order, negative
    requests: int = 0
    tokens: int = 0
    num_bytes: int = 0

    def add(self, nats: tuple[float, ...], tokens: int, text: str) -> None:
        """Add one request: its log-probability along each order, its number of tokens, and its text."""
        self.nats = [sum(pair) for pair in zip(self.nats or [0.0] * len(nats), nats, strict=True)]
        self.requests += 1
        self.tokens += tokens
        self.num_bytes += len(text.encode())

    def row(self) -> dict[str, Json]:
        """Return the means over orders, with half of their 95% intervals, None for one order."""
        per_token = [-nats / self.tokens for nats in self.nats]
        mean = fmean(per_token)
        half = half_interval(per_token) if len(per_token) > 1 else None
        bits_per_nat_per_token = self.tokens / self.num_bytes / math.log(2)
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "bytes": self.num_bytes,
            "nats_per_token": mean,
            "nats_per_token_half_interval": half,
            "bits_per_byte": mean * bits_per_nat_per_token,
            "bits_per_byte_half_interval": None if half is None else half * bits_per_nat_per_token,
        }


class GenerationSettings(NamedTuple):
    """The settings of the answer to a request."""

    until: tuple[str, ...]  # an answer ends before the first of them
    max_tokens: int
    temperature: float  # 0 is greedy
    top_p: float


def generation_settings(values: Mapping[str, Any], max_length: int) -> GenerationSettings:
    """Return the settings of a task's `generation_kwargs`, by the rules of lm-eval.

    Generation is greedy unless they ask for sampling: by do_sample, or else by a temperature above
    0.

    Raises:
        ValueError: a setting is not supported, or leaves no room for a context.
    """
    default = min(DEFAULT_MAX_TOKENS, max_length // 2)
    sampled = {"temperature": 1.0, **values} if values.get("do_sample") else dict(values)
    settings = normalize_gen_kwargs(sampled, default)
    for name in settings:
        check_choice("generation_kwargs", name, SUPPORTED)
    max_tokens = settings["max_gen_toks"]
    if not 1 <= max_tokens < max_length:
        problem = f"the model has {max_length} positions, and the context needs some"
        raise ValueError(f"max_gen_toks={max_tokens}: {problem}. Use 1 to {max_length - 1}.")
    until = tuple(stop for stop in settings["until"] if stop)
    temperature = settings.get("temperature", 0.0)
    return GenerationSettings(until, max_tokens, temperature, settings.get("top_p", 1.0))


def before_stop(text: str, until: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    for stop in until:
        text = text.split(stop, maxsplit=1)[0]
    return text


def is_decided(text: str, until: Sequence[str]) -> bool:
    """Return whether the text before the first stop string stays the same, whatever follows.

    Another stop string may begin in this text, and end after it. Only if it overlaps the first it
    counts.
    """
    return bool(until) and len(text) >= len(before_stop(text, until)) + sum(map(len, until))


def continue_contexts(
    model: TextModel,
    contexts: Sequence[Sequence[int]],
    numbers: Sequence[int],
    settings: GenerationSettings,
    decoding: Decoding,
    seed: int,
) -> list[str]:
    """Return the generated text after each context, up to its first stop string or the end of the text.

    A context that is too long loses its first tokens. Each is decoded with the random stream of
    (seed, number). Decoding ends when no later token changes a text.
    """
    decoding = replace(decoding, temperature=settings.temperature, top_p=settings.top_p)
    num_new, ends = settings.max_tokens, model.ends
    fitted = [model.fitted(context, num_new + model.feeds_first) for context in contexts]

    def answer(line: list[int], start: int) -> tuple[str, bool]:
        """Return the text after a context, and whether no later token changes it."""
        tokens = line[start : start + num_new]
        stops = {*ends, unwrap(model.net).mask_id}
        length = next((index for index, token in enumerate(tokens) if token in stops), num_new)
        text = model.codec.decode(tokens[:length])
        is_at_end = not ends.isdisjoint(tokens[length : length + 1])
        return before_stop(text, settings.until), is_at_end or is_decided(text, settings.until)

    texts: dict[int, str] = {}
    for net, indices in model.by_first(fitted):
        rows = [
            Continuation(fitted[index][model.feeds_first :], [0] * num_new, numbers[index])
            for index in indices
        ]
        tokens, num_known, lengths = padded(rows, model.device)

        def is_finished(
            lines: Int[Tensor, " A"], tokens: Int[Tensor, "A L"], starts: Tensor = num_known
        ) -> bool:
            pairs = zip(tokens.tolist(), starts[lines].tolist(), strict=True)
            return all(answer(line, start)[1] for line, start in pairs)

        generated = generate(
            net,
            model.method,
            tokens,
            torch.arange(tokens.shape[1], device=model.device) < num_known[:, None],  # (B, L)
            decoding,
            seed,
            rows=torch.tensor([row.number for row in rows], device=model.device),
            lengths=lengths,
            stop=is_finished,
        )
        pairs = zip(generated.tokens.tolist(), num_known.tolist(), strict=True)
        texts |= zip(indices, (answer(*pair)[0] for pair in pairs), strict=True)
    return [texts[index] for index in range(len(contexts))]


class LatentTokensLM(TemplateLM):  # type: ignore[misc]
    """A language model for lm-eval, along a decoding order and with a number of latent tokens.

    Log-likelihoods are exact: each token of the continuation is predicted in its own step of the
    order, given the context, the tokens before it in the order, and n masked tokens. For random
    orders they are the mean over orders. A continuation is greedy if each of its tokens is the
    argmax of its step, along every order.

    `get_model_info`, which lm-eval adds to its results, returns the method, the order, the number
    of latent tokens, the settings of generation, and nats per token and bits per byte with their intervals.

    Args:
        model: a run directory, a model directory, a name on the hub, or a network with `method` and
            `max_length`. A directory of transformers is opened as an autoregressive model, `arm`.
        tokenizer: the text task or the tokenizer of a network. A path or a name has its own.
        latents: the number of latent tokens (n) or "all". None is the method's own.
        order: "uniform" or "left_to_right". None is uniform, or left_to_right if the method decodes
            so.
        candidates: in generation, the number of candidates (k), "all" or "growing": the most
            confident one is decoded. None is 1, the next token of the order, and 8 for a confidence
            or a rule.
        confidence: in generation, what ranks candidates: "top_prob", "margin" or "entropy".
        tokens_per_step: in generation, the tokens decoded per step, of a rule the most. None is 1.
        threshold, entropy_bound, factor, frechet_bound: in generation, decode every candidate of
            which the network is sure, as `Decoding` does.
        orders: the number of random orders of a continuation. None is 4.
        suffix: the number of masked positions after a continuation, which are latent tokens only.
            None is n, so that its last token has n latent tokens too. For "all" it is 0, or what a
            window has room for.
        seed: the random seed. Request i has the random orders and numbers of (seed, i).
        batch_size: requests computed together. "auto" and "auto:N" are 8.
        device: the device of the network. None leaves it where it is.
        off_distribution: allow any n for a method whose n is fixed in training.
        max_batch_size: not used, but passed by lm-eval.
        base: the model that a LoRA adapter belongs to, as for `from_pretrained`.

    Raises:
        ImportError: lm-eval is not installed.
        ValueError: the model cannot be read, or its method does not support the order or the latent
            tokens.

    Example::

        lm = LatentTokensLM("runs/esolm", latents=8, order="left_to_right")
        results = lm_eval.simple_evaluate(model=lm, tasks=["lambada_openai"])
    """

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Text | PreTrainedTokenizerBase | None = None,
        *,
        latents: int | Literal["all"] | None = None,
        order: Literal["uniform", "left_to_right"] | None = None,
        candidates: NumCandidates | None = None,
        confidence: ConfidenceName | None = None,
        tokens_per_step: int | None = None,
        threshold: float | None = None,
        entropy_bound: float | None = None,
        factor: float | None = None,
        frechet_bound: float | None = None,
        orders: int | None = None,
        suffix: int | None = None,
        seed: int = 0,
        batch_size: int | str = "auto",
        device: str | torch.device | None = None,
        off_distribution: bool = False,
        max_batch_size: int | None = None,
        base: str | Path | None = None,
    ) -> None:
        super().__init__()
        # Open the model, and check the settings against its method.
        self.settings = LikelihoodSettings(latents, order, orders, suffix, seed, off_distribution)
        is_auto = str(batch_size).partition(":")[0] == "auto"
        self.batch_size = AUTO_BATCH_SIZE if is_auto else int(batch_size)
        check_int("batch_size", self.batch_size, 1)
        self.model = open_model(model, tokenizer, base)
        self.schedule, self.num_orders = orders_of(self.model.method, self.settings)
        generation: dict[str, Any] = {
            "candidates": candidates,
            "confidence": confidence,
            "tokens_per_step": tokens_per_step,
            "threshold": threshold,
            "entropy_bound": entropy_bound,
            "factor": factor,
            "frechet_bound": frechet_bound,
        }
        self.generation = {name: value for name, value in generation.items() if value is not None}
        if not self.generation.keys() & {"confidence", *SELECTIONS}:
            self.generation.setdefault("candidates", 1)
        k = self.generation.get("candidates")
        self.decoding = Decoding(
            latents=latents,
            order=self.schedule,
            off_distribution=off_distribution,
            **{**self.generation, "candidates": growing if k == "growing" else k},
        )
        check_decoding(self.model.method, self.decoding)
        if device is not None:
            self.model.net.to(device)

        # The attributes that lm-eval reads.
        self._device = self.model.device
        self.max_length = self.model.max_length
        self.tokenizer = self.model.codec.tokenizer or self.model.codec.chat
        self.totals: dict[str, LikelihoodTotal] = defaultdict(LikelihoodTotal)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self.model.codec.end

    @property
    def prefix_token_id(self) -> int:
        """The context of a text without one."""
        return self.model.codec.start

    @property
    def tokenizer_name(self) -> str:
        """The name by which lm-eval caches requests."""
        return self.model.codec.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None) -> list[int]:
        """Return the tokens of a text. With None, the tokenizer decides whether special tokens are added."""
        return self.model.encode(string, add_special_tokens)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a chat as one text. Raise ValueError if the model has no chat template."""
        if self.tokenizer is None or not self.tokenizer.chat_template:
            raise ValueError("chat=True: this model has no chat template. Leave it out.")
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def get_model_info(self) -> dict[str, Any]:
        """Return the settings, and by type of request the likelihood of all requests so far."""
        method = self.model.method
        latents = self.settings.latents
        info: dict[str, Any] = {
            "method": name_of(method),
            "order": "left_to_right" if is_left_to_right(self.schedule) else "uniform",
            "orders": self.num_orders,
            "latents": method.default_latents if latents is None else latents,
            "suffix": suffix_of(method, self.settings),
            "seed": self.settings.seed,
            "generation": self.generation,
            "likelihood": {kind: total.row() for kind, total in self.totals.items()},
        }
        if is_off_distribution(method, latents):
            info["off_distribution"] = True
        return info

    def score(self, kind: str, pairs: Sequence[Pair], is_quiet: bool) -> list[ContinuationScore]:
        """Return the likelihood of each continuation, with a progress bar of the type of request."""
        with tqdm(total=len(pairs), desc=kind, disable=is_quiet) as progress:
            return score_pairs(self.model, pairs, self.settings, self.batch_size, progress.update)

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
    ) -> list[tuple[float, bool]]:
        pairs = [(context, tokens) for _, context, tokens in requests]
        scores = self.score("loglikelihood", pairs, disable_tqdm)
        answers = []
        for (texts, _, tokens), score in zip(requests, scores, strict=True):
            context, text = texts
            text = context[len(context.rstrip()) :] + text  # as lm-eval splits the tokens
            self.totals["loglikelihood"].add(score.nats, len(tokens), text)
            answers.append((fmean(score.nats), score.is_greedy))
            self.cache_hook.add_partial("loglikelihood", texts, answers[-1])
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-probability of each text, in windows of the model's length.

        Each token is predicted once. Its context is at least one token, as for lm-eval's own
        models.
        """
        kind = "loglikelihood_rolling"
        texts = [request.args[0] for request in requests]
        windows = [self.windows(text) for text in texts]
        scores = iter(self.score(kind, [pair for each in windows for pair in each], disable_tqdm))
        answers = []
        for text, each in zip(texts, windows, strict=True):
            nats = tuple(map(sum, zip(*(next(scores).nats for _ in each), strict=True)))
            if each:  # an empty text has no window
                self.totals[kind].add(nats, sum(len(tokens) for _, tokens in each), text)
            answers.append(fmean(nats) if each else 0.0)
            self.cache_hook.add_partial(kind, (text,), answers[-1])
        return answers

    def windows(self, text: str) -> list[Pair]:
        """Return the windows of a text, each with the tokens before it and those that it predicts."""
        pairs = get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.model.rolling_length(suffix_of(self.model.method, self.settings)),
            context_len=1,
        )
        return [make_disjoint_window(pair) for pair in pairs]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the generated text of each request, up to its first stop string or the end of the text.

        Request i draws from the random stream (seed, i), so an answer does not depend on its batch.
        """
        settings = [generation_settings(request.args[1], self.max_length) for request in requests]
        contexts = [
            self.tok_encode(request.args[0]) or [self.prefix_token_id] for request in requests
        ]
        answers: dict[int, str] = {}
        with tqdm(total=len(requests), desc="generate_until", disable=disable_tqdm) as progress:
            for each in dict.fromkeys(settings):
                indices = [index for index, other in enumerate(settings) if other == each]
                for start in range(0, len(indices), self.batch_size):
                    batch = indices[start : start + self.batch_size]
                    given = [contexts[index] for index in batch]
                    texts = continue_contexts(
                        self.model, given, batch, each, self.decoding, self.settings.seed
                    )
                    answers |= zip(batch, texts, strict=True)
                    progress.update(len(batch))
        for index, request in enumerate(requests):
            self.cache_hook.add_partial("generate_until", request.args, answers[index])
        return [answers[index] for index in range(len(requests))]
