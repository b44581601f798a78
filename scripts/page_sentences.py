"""Measure the text model of the page on held-out sentences, and choose the sentences that the page shows.

    python scripts/page_sentences.py texts/novels

writes sentences.json into src/latent_tokens/bundled, and the page then shows them. The directory is that of
scripts/novels.py. Every sentence of the test split is decoded with n = 0 and n = all, in one random order at
temperature 0, and the author's words are scored in the same order. The first sentences of each kind are
shown. Run it again after the model changes. These commands train it and bundle it:

    latent-tokens data text --source texts/novels/sentences.jsonl --length 16 \\
        --tokenizer texts/novels/tokenizer.json --out data/novels
    latent-tokens train text scdm --data data/novels --size 64x4x3 --precision fp32 --threads 1 \\
        --steps 6000 --evaluate-every 500 --dropout 0.1 --out runs/novels-scdm
    python scripts/release_models.py runs/novels-scdm
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.checkpoints.learned import learned_task
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.data.corpus import split_of
from latent_tokens.evaluation.intervals import half_interval_of_ratio
from latent_tokens.hf.directory import from_pretrained
from latent_tokens.progress import progress
from latent_tokens.storage import json_bytes, read_lines, sha256_of, write_atomic
from latent_tokens.tasks import Examples, Text
from latent_tokens.trace.examples import SENTENCES
from latent_tokens.trace.record import DecodeRequest, Frame, LoadedModel, trace

MODEL = "novels-scdm"
SEED = 0  # of the masked words and of every order
MASKED = 0.5  # share of the words
SHIFT = 1  # from the cells of a trace, which leaves out the first end, to positions
SHORTEST = 8  # words of a shown sentence
KEPT = {"gained": 3, "lost": 1, "equal": 1}
LATENTS: dict[str, Literal["all"] | int] = {"none": 0, "all": "all"}


class Gaps(NamedTuple):
    """A sentence with masked words: the author's tokens, and the masked positions."""

    tokens: list[int]
    masked: list[int]

    def example(self, length: int) -> Examples:
        """Return the problem, padded to a length."""
        num_tokens = len(self.tokens)
        tokens = np.array([self.tokens + self.tokens[-1:] * (length - num_tokens)])
        known = np.arange(length) < num_tokens
        known[self.masked] = False
        return Examples.of(tokens, known[None], [num_tokens])


def sentences_of(source: Path, task: Text) -> list[Gaps]:
    """Return the sentences of the test split, each framed by ends, with half of its words masked."""
    texts = [str(row["text"]) for row in read_lines(source / "sentences.jsonl")]
    held_out = [text for text in texts if split_of(text) == "test"]
    generator = np.random.default_rng(SEED)
    end = task.coder.end
    sentences = []
    for ids in task.coder.encode(held_out):
        count = max(1, round(MASKED * len(ids)))
        masked = 1 + generator.permutation(len(ids))[:count]
        sentences.append(Gaps([end, *ids.tolist(), end], sorted(masked.tolist())))
    return sentences


def decoded_and_scored(
    model: LoadedModel, sentence: Gaps, latents: Literal["all"] | int, seed: int = SEED
) -> tuple[list[Frame], float]:
    """Return the steps of a decode, and the nats of the author's words in the same order."""
    problem = sentence.example(model.task.length)
    setting = SamplingConfig(latents, order="uniform", temperature=0.0, seed=seed, refresh=False)
    frames = trace(DecodeRequest(model, problem, setting))["frames"]
    decoded = [frame["chosen"][0][0] + SHIFT for frame in frames]
    given = [position for position in range(len(sentence.tokens)) if position not in sentence.masked]
    order = [*given, *decoded, *range(len(sentence.tokens), model.task.length)]
    scores = score_tokens(
        model.net,
        model.net.method,
        torch.from_numpy(problem.tokens).long(),
        torch.tensor([order]),
        torch.tensor([len(given)]),
        torch.tensor([len(sentence.tokens)]),
        latents,
    )
    return frames, -float(scores.log_probabilities.sum())


def filled(model: LoadedModel, sentence: Gaps, latents: Literal["all"] | int) -> tuple[int, float]:
    """Return how many masked words are the author's, and the nats of the author's words."""
    frames, nats = decoded_and_scored(model, sentence, latents)
    chosen = [frame["chosen"][0] for frame in frames]
    return sum(token == sentence.tokens[cell + SHIFT] for cell, token in chosen), nats


def record_of(model: LoadedModel, sentences: Sequence[Gaps]) -> dict[str, Any]:
    """Return what the page shows: the counts of all sentences, and the first of each kind."""
    rows: dict[str, list[tuple[int, float]]] = {}
    for name, latents in LATENTS.items():
        with progress(f"{model.name}, n = {latents}", len(sentences)) as advance:
            rows[name] = []
            for sentence in sentences:
                rows[name].append(filled(model, sentence, latents))
                advance(1, "")
    counts = [len(sentence.masked) for sentence in sentences]
    more = [all_[0] - none[0] for none, all_ in zip(rows["none"], rows["all"], strict=True)]
    saved = [none[1] - all_[1] for none, all_ in zip(rows["none"], rows["all"], strict=True)]
    kinds = ["gained" if count > 0 else "lost" if count < 0 else "equal" for count in more]
    half = half_interval_of_ratio(saved, counts)
    mean = sum(saved) / sum(counts)
    shown = []
    for kind, most in KEPT.items():
        of_kind = [each for each, own in zip(sentences, kinds, strict=True) if own == kind]
        long = [each for each in of_kind if len(each.tokens) >= SHORTEST + 2]
        shown += [{**each._asdict(), "kind": kind} for each in long[:most]]
    return {
        "model": model.name,
        "sha256": sha256_of(BUNDLED / model.name / "model.safetensors"),
        "seed": SEED,
        "words": words_of(model.task),
        "sentences": len(sentences),
        "tokens": sum(counts),
        "measured": {
            name: {
                "nats": sum(nats for _, nats in values) / sum(counts),
                "right": sum(right for right, _ in values),
            }
            for name, values in rows.items()
        },
        "saved": mean,
        "interval": [mean - half, mean + half],
        "counts": {kind: kinds.count(kind) for kind in KEPT},
        "shown": shown,
    }


def words_of(task: Any) -> list[str]:
    """Return the vocabulary, with an empty word for the end of a sentence."""
    words = [task.coder.decode([token]) for token in range(task.vocab_size)]
    words[task.coder.end] = ""
    return words


def main(source: Path) -> None:
    """Measure the bundled model, write the record and print its numbers."""
    folder = BUNDLED / MODEL
    task = learned_task(folder)
    assert isinstance(task, Text)
    model = LoadedModel(MODEL, from_pretrained(folder), task)
    record = record_of(model, sentences_of(source, task))
    write_atomic({SENTENCES: json_bytes(record)})
    print(json.dumps({key: record[key] for key in ("sentences", "tokens", "measured", "saved", "interval")}))


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__))
