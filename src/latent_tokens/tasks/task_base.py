"""A base class for tasks of users, with a default for all but four members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import did_you_mean
from latent_tokens.tasks.base import (
    Examples,
    Keys,
    Scores,
    Task,
    Tokens,
    TokensLike,
    as_array,
    hash_rows,
    split_by_key,
)


class TaskBase(ABC):
    """A task of your own. Inherit, and write `length`, `vocab`, `generate` and `verify`.

    Everything else has a default that you may override. `latent_tokens.Task` documents each member.

    Attributes:
        length: L, the maximum number of positions of a sequence.
        vocab: The text of each token. Texts of one character are written without spaces.
        name: The name in results. Default: the name of the class.
        metric: The main figure of `score`.
        num_train: The default number of training examples.
        blank: The text of a position to decode. It is not in `vocab`.

    Example:
        >>> class Palindrome(TaskBase):
        ...     length = 8
        ...     vocab = "abc"
        ...
        ...     def generate(self, count, seed, first=0):
        ...         numbers = range(first, first + count)
        ...         halves = [np.random.default_rng((seed, i)).integers(3, size=4).tolist() for i in numbers]
        ...         return Examples.padded([half + half[::-1] for half in halves], 4, self.length)
        ...
        ...     def verify(self, tokens):
        ...         return [] if (tokens == tokens[::-1]).all() else ["is not a palindrome"]
        >>> task = Palindrome()
        >>> task.score([task.encode("abccbaab").tokens[0]])["valid"].tolist()
        [0.0]
    """

    length: int
    vocab: Sequence[str]
    name: str
    metric: str = "valid"
    num_train: int = 20_000
    blank: str = "."

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    @abstractmethod
    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate examples number first .. first+count-1 of a seed, as `Task.generate`."""

    @abstractmethod
    def verify(self, tokens: Tokens) -> list[str]:
        """Return the errors of one sequence in words, none if it is valid."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens without MASK."""
        return len(self.vocab)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The text of each token, from which a tokenizer is made."""
        return tuple(self.vocab)

    @property
    def separator(self) -> str:
        """The text between two tokens."""
        return " " if any(len(word) > 1 for word in self.vocab) else ""

    def keys(self, examples: Examples) -> Keys:
        """Return a hash of each sequence, whichever of its positions are given."""
        inside = np.arange(examples.tokens.shape[1]) < examples.lengths[:, None]
        # 0 is a position past the end, so that a shorter sequence has another key.
        return np.asarray(hash_rows(np.where(inside, examples.tokens.astype(np.uint32) + 1, 0)))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each example, by its key."""
        return split_by_key(self.keys(examples))

    def encode(self, text: str) -> Examples:
        """Return a prompt as one example. `blank` is a position to decode.

        A text without blanks is followed by as many as there is room for.

        Raises:
            ValueError: The text is too long, or has a word that is not in the vocabulary. Or the vocabulary
                has `blank`, a word twice, or one that no text can name.
        """
        ids = ids_of(self.vocab, self.name, self.separator)
        if self.blank in ids:
            raise ValueError(
                f"blank={self.blank!r}: is a token of {self.name}. "
                "Set blank of the task to a text that is not in vocab."
            )
        words = text.split()
        if not self.separator:
            words = [word for word in text if word in ids or not word.isspace()]
        if len(words) > self.length:
            raise ValueError(
                f"{len(words)} tokens: {self.name} has {self.length} positions. Shorten the text."
            )
        if self.blank not in words:
            words += [self.blank] * (self.length - len(words))
        for word in words:
            if word not in ids and word != self.blank:
                raise ValueError(f"{word!r}: is not a token of {self.name}{did_you_mean(word, ids)}")
        examples = Examples.padded([[ids.get(word, 0) for word in words]], 0, self.length)
        examples.known[0, : len(words)] = [word != self.blank for word in words]
        return examples

    def decode(self, tokens: TokensLike) -> str:
        """Return one sequence (L,) as text. A token that is not in the vocabulary is a blank."""
        ids = as_array(tokens).tolist()
        return self.separator.join(
            self.vocab[token] if token < len(self.vocab) else self.blank for token in ids
        )

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score N samples (N, L): valid, without errors of `verify`, and exact, equal to the stored example.

        Samples are cut at the lengths of `truth`. Without it there is no `exact`.
        """
        rows = as_array(tokens)
        lengths = [rows.shape[1]] * len(rows) if truth is None else truth.lengths.tolist()
        samples = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        figures = {
            "valid": np.array([not errors_of(self, sample, len(sample)) for sample in samples], np.float64)
        }
        if truth is not None:
            pairs = zip(samples, truth.tokens, strict=True)
            same = [np.array_equal(sample, answer[: len(sample)]) for sample, answer in pairs]
            figures["exact"] = np.array(same, np.float64)
        return figures

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return None: the number of answers is not known."""
        return None


def ids_of(vocab: Sequence[str], name: str, separator: str) -> dict[str, int]:
    """Return the token of each text of the vocabulary of a task. Raise ValueError if two are the same."""
    ids = {word: token for token, word in enumerate(vocab)}
    twice = [word for token, word in enumerate(vocab) if ids[word] != token]
    spaced = [word for word in vocab if separator and word.split() != [word]]
    if twice:
        raise ValueError(f"vocab of {name}: {twice[0]!r} is in it twice. Name each token once.")
    if spaced:
        problem = "has white space, which separates words" if spaced[0] else "is empty"
        raise ValueError(f"vocab of {name}: {spaced[0]!r} {problem}. Use one word.")
    return ids


def errors_of(task: Task, tokens: Tokens, length: int) -> list[str]:
    """Return the errors of one sequence by the verifier of its task.

    A `TaskBase` verifies the sequence without what follows its end, as its `score` does.

    Args:
        task: the task.
        tokens: the sequence, (L,).
        length: the number of its positions.

    Raises:
        ValueError: the verifier does not return a list, such as one that returns whether it is valid.
    """
    errors: object = task.verify(tokens[:length] if isinstance(task, TaskBase) else tokens)
    if not isinstance(errors, list | tuple):
        raise ValueError(
            f"verify of {task.name} returns {type(errors).__name__}: must be a list of errors, "
            "empty if the answer is valid. Correct verify."
        )
    return list(errors)
