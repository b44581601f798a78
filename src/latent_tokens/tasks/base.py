"""The protocol of a task, text to tokens and back and a score, and a base class for yours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import did_you_mean
from latent_tokens.plugins import fault_of
from latent_tokens.tasks.examples import Examples, Known, Tokens, TokensLike, as_array, one_sequence
from latent_tokens.tasks.rng import mixed

Keys = NDArray[np.uint64]
Scores = dict[str, NDArray[np.float64]]

SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
PAD, BOS, EOS, SEP = range(4)  # of Countdown and Zebra, and PAD of Sudoku puzzles
HELD_OUT = 16  # one in 16 examples is for validation, and as many are for the test


@runtime_checkable
class Language(Protocol):
    """Sequences to learn. Tokens are 0..vocab_size-1, without MASK."""

    @property
    def name(self) -> str:
        """The name on the command line and in manifests."""

    @property
    def length(self) -> int:
        """L, the maximum number of positions of a sequence."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens without MASK."""

    def encode(self, text: str) -> Examples:
        """Return a prompt as one example without its answer. Raise ValueError naming the error."""

    def decode(self, tokens: Tokens) -> str:
        """Return one sequence (L,) as text. Tokens that are out of place read as empty."""


@runtime_checkable
class Task(Language, Protocol):
    """A problem that can be generated and scored.

    A task may also have a `temperature`, the default one of sampling (otherwise 1.0), a `note` for
    manifests, a `pad`, the token that follows the end of an answer, and `symbols`, the text of each
    token, from which a tokenizer is made.

    Example:
        >>> task = TASKS["sudoku-4"]
        >>> examples = task.generate(2, seed=0)
        >>> task.score(examples.tokens)["valid"].tolist()
        [1.0, 1.0]
    """

    @property
    def metric(self) -> str:
        """The main key of `score`, a share of samples."""

    @property
    def num_train(self) -> int:
        """The default number of training examples: the paper's, or that of a small task."""

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate examples number first .. first+count-1 of a seed, without those that do not fit.

        An example depends on the seed and its number only.

        Args:
            count: How many numbers of the seed to try.
            seed: The seed.
            first: The first number.

        Returns:
            At most `count` examples (N, L).
        """

    def keys(self, examples: Examples) -> Keys:
        """Return a key for each of N examples, equal for examples with the same canonical form."""

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each of N examples as an index of SPLITS, by its canonical form."""

    def verify(self, tokens: Tokens) -> list[str]:
        """Return the errors of one sequence (L,) in words, judged by its own problem."""

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """Score N samples.

        Args:
            tokens: The samples, (N, L).
            truth: The stored examples, by which only exactness is judged.

        Returns:
            Every figure by its name, float64, (N,).
        """


@runtime_checkable
class Solvable(Task, Protocol):
    """A task that can count the answers of a problem."""

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return how many answers (at most `most`) a problem has, or None if it takes too long.

        0 always means no answer. A task with many answers per problem may stop at 1.
        """


@runtime_checkable
class Answerable(Task, Protocol):
    """A task whose problems and answers have a text, so that answers of any model can be scored."""

    @property
    def answer_format(self) -> str:
        """The form of an answer in words, for those who write one."""

    def prompt(self, problem: Examples) -> str:
        """Return the text of a problem of one example, which `encode` reads."""

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a problem of one example with the answer of a text.

        Raises:
            ValueError: The text does not have the form of an answer. A wrong answer has it.
        """


def check_tokens(task: Language, tokens: Tokens, where: Known, name: str, fix: str) -> None:
    """Raise ValueError if tokens (N, L) have another length than the task, or one is not of its vocabulary.

    `where` are the positions to check, (N, L), `name` is what holds the tokens, and `fix` corrects
    one.
    """
    if tokens.shape[1] != task.length:
        raise ValueError(
            f"{name} of {tokens.shape[1]} positions: {task.name} has {task.length}. Use {task.length}."
        )
    for token in (int(tokens.min(where=where, initial=0)), int(tokens.max(where=where, initial=0))):
        if not 0 <= token < task.vocab_size:
            tokens_of_task = f"the tokens 0-{task.vocab_size - 1}"
            raise ValueError(f"{name} with token {token}: {task.name} has {tokens_of_task}. {fix}.")


def scores_of(task: Task, tokens: Tokens, truth: Examples | None) -> Scores:
    """Return `task.score` of N samples (N, L). Raise ValueError unless it has the metric, a share.

    Raise it also for figures that are not one number per sample.
    """
    returned: object = task.score(tokens, truth)
    if not isinstance(returned, dict):
        problem = f"returns {type(returned).__name__}, and must return figures by name"
        raise ValueError(f"score of {task.name}: {problem}. Correct score.")
    scores: Scores = {name: np.asarray(values) for name, values in returned.items()}
    for name, values in scores.items():
        if values.shape != (len(tokens),) or values.dtype.kind not in "buif":
            entry = f"{name} of shape {values.shape} and type {values.dtype}"
            must = f"must be a number for each of {len(tokens)} samples"
            raise ValueError(f"score of {task.name} has {entry}: {must}. Correct score.")
    values = scores.get(task.metric, np.array([np.nan]))
    for value in values[~((values >= 0) & (values <= 1))]:
        problem = f"score of {task.name} has {', '.join(scores)}, and the metric {value:g}"
        must = "must be one of them, a share from 0 to 1. Correct metric or score"
        raise ValueError(f"metric={task.metric}: {problem}: {must}.")
    return scores


def split_by_key(keys: Keys) -> NDArray[np.int8]:
    """Return 1 (validation) for one in HELD_OUT keys, 2 (test) for as many, and 0 (train) for the others."""
    rest = keys % np.uint64(HELD_OUT)
    return np.where(rest == 1, 1, np.where(rest == 2, 2, 0)).astype(np.int8)


@numba.njit(cache=True)
def hash_rows(rows):  # type: ignore[no-untyped-def]
    """Return a 64-bit hash for each row of uint8[N, M]."""
    keys = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        key = np.uint64(rows.shape[1])
        for j in range(rows.shape[1]):
            key = mixed(key ^ np.uint64(rows[i, j])) + np.uint64(j)
        keys[i] = mixed(key)
    return keys


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of the numbers 0..count-1, evenly spaced."""
    return np.arange(count) if count <= most else np.arange(most) * count // most


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
        ...         streams = [np.random.default_rng((seed, i, 1)) for i in numbers]  # sampling has (seed, i)
        ...         halves = [stream.integers(3, size=4).tolist() for stream in streams]
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
    def verify(self, tokens: NDArray[np.integer[Any]]) -> list[str]:
        """Return the errors of one sequence in words, none if it is valid. Its tokens are int64."""

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
        # 0 is a position past the end, so that a shorter sequence has another key.
        tokens = np.where(examples.inside, examples.tokens.astype(np.uint32) + 1, 0)
        return np.asarray(hash_rows(tokens))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each example, by its key."""
        return split_by_key(self.keys(examples))

    def encode(self, text: str) -> Examples:
        """Return a prompt as one example. `blank` is a position to decode.

        A text without blanks is followed by as many as there is room for.

        Raises:
            ValueError: The text is too long, or has a word that is not in the vocabulary.
        """
        ids = {word: token for token, word in enumerate(self.vocab)}
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
                close = did_you_mean(word, ids)
                raise ValueError(f"{word!r}: is not a token of {self.name}{close}")
        examples = Examples.padded([[ids.get(word, 0) for word in words]], 0, self.length)
        examples.known[0, : len(words)] = [word != self.blank for word in words]
        return examples

    @property
    def answer_format(self) -> str:
        """The form of an answer in words."""
        return "all tokens of the sequence, or those of its blanks, as the task writes them"

    def prompt(self, problem: Examples) -> str:
        """Return the text of a problem of one example, which `encode` reads."""
        pairs = zip(problem.tokens[0].tolist(), problem.known[0].tolist(), strict=True)
        words = [self.vocab[token] if known else self.blank for token, known in pairs]
        return self.separator.join(words[: problem.lengths[0]])

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a problem of one example with an answer: all its tokens, or those of its blanks."""
        answer = self.encode(text)
        tokens = answer.tokens[0][answer.known[0]]
        blanks = ~problem.known[0] & (np.arange(self.length) < problem.lengths[0])
        if len(tokens) == problem.lengths[0]:
            blanks |= problem.known[0]
        elif len(tokens) != blanks.sum():
            allowed = f"{blanks.sum()} or {problem.lengths[0]}"
            raise ValueError(f"{len(tokens)} tokens: must be {allowed}")
        # The answer may have larger tokens than the type of the problem holds.
        filled = problem.tokens.astype(np.promote_types(problem.tokens.dtype, tokens.dtype))
        filled[0, blanks] = tokens
        return Examples(filled, problem.known, problem.lengths)

    def decode(self, tokens: TokensLike) -> str:
        """Return one sequence (L,) as text. A token that is not in the vocabulary is a blank."""
        ids = one_sequence(tokens).tolist()
        return self.separator.join(
            self.vocab[token] if token < len(self.vocab) else self.blank for token in ids
        )

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score N samples (N, L): valid, without errors of `verify`, and exact, equal to the stored example.

        Samples are cut at the lengths of `truth`. Without it, or if it gives nothing, there is no
        `exact`.
        """
        rows = as_array(tokens)
        lengths = [rows.shape[1]] * len(rows) if truth is None else truth.lengths.tolist()
        samples = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        is_valid = [not errors_of(self, sample, len(sample)) for sample in samples]
        figures = {"valid": np.array(is_valid, np.float64)}
        if truth is not None and truth.known.any():
            pairs = zip(samples, truth.tokens, strict=True)
            same = [np.array_equal(sample, answer[: len(sample)]) for sample, answer in pairs]
            figures["exact"] = np.array(same, np.float64)
        return figures

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return None: the number of answers is not known."""
        return None


def errors_of(task: Task, tokens: Tokens, length: int) -> list[str]:
    """Return the errors of one sequence (L,) of a length by the verifier of its task.

    A `TaskBase` verifies it without what follows its end, as its `score` does, in int64, so that
    differences can be negative. Raise ValueError if its verifier raises an error, with the line, or
    does not return a list, such as one that returns whether it is valid.
    """
    sequence: Any = tokens[:length].astype(np.int64) if isinstance(task, TaskBase) else tokens
    try:
        errors: object = task.verify(sequence)
    except Exception as error:
        raise ValueError(
            f"verify of {task.name}: fails ({fault_of(error)}). Correct it."
        ) from error
    if not isinstance(errors, list):
        problem = f"returns {type(errors).__name__}: must be a list of errors, empty if the answer is valid"
        raise ValueError(f"verify of {task.name} {problem}. Correct verify.")
    return errors


def check_vocab(task: TaskBase) -> None:
    """Raise ValueError if a prompt cannot name each token: one is no text, has a space, or equals another."""
    words = list(task.vocab)
    other = next((word for word in words if not isinstance(word, str)), None)
    if other is not None:
        raise ValueError(
            f"vocab of {task.name}: has {other!r}, and must have texts. Use '{other}'."
        )
    if len({*words, task.blank}) <= len(words):
        fix = "Rename a token, or set blank of the task"
        must = f"must have each token once, and not blank={task.blank!r}"
        raise ValueError(f"vocab of {task.name}: {must}. {fix}.")
    spaced = next((word for word in words if task.separator and word.split() != [word]), None)
    if spaced is not None:
        must = f"has {spaced!r}, and words have spaces between them"
        raise ValueError(f"vocab of {task.name}: {must}. Rename it, such as New_York.")


def generate_checked(task: Task, count: int, seed: int, first: int = 0) -> Examples:
    """Return `task.generate` in the types of data sets. Raise ValueError if it fails, or for no examples."""
    try:
        examples: object = task.generate(count, seed, first)
    except Exception as error:
        raise ValueError(
            f"generate of {task.name}: fails ({fault_of(error)}). Correct it."
        ) from error
    if not isinstance(examples, Examples):
        problem = f"returns {type(examples).__name__}, and must return Examples"
        raise ValueError(f"generate of {task.name}: {problem}. Use Examples.padded or Examples.of.")
    tokens = as_array(examples.tokens)
    inside = np.arange(tokens.shape[1]) < np.asarray(examples.lengths)[:, None]
    check_tokens(task, tokens, inside, "examples", "Correct vocab or generate of the task")
    return Examples.of(tokens, np.asarray(examples.known, np.bool_), examples.lengths)
