"""Small files that ask for gigabytes are refused by a budget: below 1 GB, in seconds, in one line."""

import json
import resource
from contextlib import contextmanager

import pytest

from helpers.hostile import GROWING
from latent_tokens.tasks.text.tokenizer import MOST_GROWTH, read_tokenizer

GIGABYTE = 1_000_000  # KB, as the system counts them


@contextmanager
def within_budget():
    """Limit a block to seconds of processor time, and to 1 GB more than the peak so far."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    yield
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
    assert after.ru_maxrss - before.ru_maxrss < GIGABYTE


def tokenizer_file(tmp_path, **parts):
    """Return a tokenizer.json of a few characters with other parts."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
    made.add_special_tokens(["<|endoftext|>"])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(made.to_str()) | parts))
    return path


@pytest.mark.parametrize("parts", GROWING.values(), ids=GROWING)
def test_a_tokenizer_that_makes_texts_far_longer_is_refused(tmp_path, parts):
    path = tokenizer_file(tmp_path, **parts)
    assert path.stat().st_size < 10_000
    with (
        within_budget(),
        pytest.raises(ValueError, match=r"tokenizer.json: its \w+ makes up to [\d,]+ characters of one"),
    ):
        read_tokenizer(str(path))


def test_a_tokenizer_with_an_endless_token_is_refused(tmp_path):
    added = [
        {
            "id": 2,
            "content": "x" * 10_000,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ]
    with pytest.raises(ValueError, match="has a token of 10,000 characters"):
        read_tokenizer(str(tokenizer_file(tmp_path, added_tokens=added)))


def test_a_tokenizer_with_ordinary_steps_is_read(tmp_path):
    steps = [
        {"type": "Prepend", "prepend": "_"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
    ]
    path = tokenizer_file(tmp_path, normalizer={"type": "Sequence", "normalizers": steps})
    assert read_tokenizer(str(path)).vocab_size == 3
    assert MOST_GROWTH > 3


def test_a_regex_that_panics_is_refused_in_one_line(tmp_path):
    """The panic of a library in Rust is a BaseException, not an Exception."""
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    tokenizer = read_tokenizer(str(tokenizer_file(tmp_path, pre_tokenizer=split)))
    with pytest.raises(
        ValueError, match=r"does not tokenize this text \(.*\)\. Use another tokenizer"
    ) as error:
        tokenizer.encode(["x" * 40])
    assert "\n" not in str(error.value)
