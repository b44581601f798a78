"""Text in the terminal: the drawing of each step, and complete characters or a sign in their place."""

from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from latent_tokens.tasks import Text
from latent_tokens.trace.terminal import PART, STYLES, watching, whole_characters


@pytest.fixture
def pictures(monkeypatch):
    """Return the parts after the legend as (text, style)."""
    seen = []
    names = {style: name for name, style in STYLES.items()}

    class Live:
        def __init__(self, picture, **options):
            self.update(picture)

        def update(self, picture):
            start = picture.plain.index("\n\n") + 2
            spans = [part for part in picture.spans if part.start >= start]
            seen.append([(picture.plain[part.start : part.end], names[part.style]) for part in spans])

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *of: None  # noqa: E731

    monkeypatch.setattr("latent_tokens.trace.terminal.Live", Live)
    return seen


def step(chosen, tokens, latents, candidates):
    return SimpleNamespace(
        chosen=torch.tensor([chosen]),
        tokens=torch.tensor([tokens]),
        latents=[latents],
        candidates=[candidates],
    )


def watch(tokens, num_tokens, *steps):
    """Watch the steps of a text whose first token is known."""
    known = torch.arange(len(tokens))[None] == 0
    with watching(Text(len(tokens)), torch.tensor([tokens]), known, torch.tensor([num_tokens])) as on_step:
        for values in steps:
            on_step(step(*values))


def test_every_step_is_drawn_in_its_colours(pictures):
    watch(
        [97, 0, 0, 0, 0, 98],
        5,
        ([2, -1], [99, -1], [3], [2, 1]),
        ([4], [0xC3], [], [4]),
        ([3], [100], [], [3]),
    )
    a, dot, box = ("a", "known"), ("·", "open"), "□"
    assert pictures == [
        [a, dot, dot, dot, dot],
        [a, (box, "candidate"), ("c", "new"), (box, "latent"), dot],
        [a, dot, ("c", "decoded"), dot, (PART, "new")],
        [a, dot, ("c", "decoded"), ("d", "new"), (PART, "decoded")],
        [a, dot, ("c", "decoded"), ("d", "decoded"), (PART, "decoded")],
    ]


def test_a_character_in_parts_is_drawn_when_the_last_is_there(pictures):
    first, second = "é".encode()
    watch([first, 0, 97], 3, ([2], [97], [1], []), ([1, -1], [second, -1], [], []))
    assert pictures[1:] == [
        [(PART, "known"), ("□", "latent"), ("a", "new")],
        [("é", "new"), ("a", "decoded")],
        [("é", "decoded"), ("a", "decoded")],
    ]


def test_characters_are_whole_or_a_sign_and_command_no_terminal():
    task, ids = Text(16), [*"aé€😀".encode(), 27, 10]
    places = [(0, 1, "a"), (1, 2, "é"), (3, 3, "€"), (6, 4, "😀"), (10, 1, r"\x1b"), (11, 1, "\n")]
    assert list(whole_characters(task, ids)) == places
    assert list(whole_characters(task, ids[2:4])) == [(0, 1, PART), (1, 1, PART)]
    assert list(whole_characters(task, [task.coder.end, 97])) == [(0, 1, "<|endoftext|>"), (1, 1, "a")]


def test_words_keep_the_space_before_them(tmp_path):
    inner = Tokenizer(models.WordLevel({"</s>": 0, "▁the": 1, "▁box": 2, "es": 3}))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    inner.save(str(tmp_path / "tokenizer.json"))
    task = Text(8, "tokenizer.json", tmp_path)
    assert [task.inside([token]) for token in (1, 2, 3)] == [" the", " box", "es"]
    assert task.inside([1, 2, 3]) == " the boxes"
