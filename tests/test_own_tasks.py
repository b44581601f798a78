"""A task of a user: four members are enough for every function and command with a task."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.data.splits import make_problems
from latent_tokens.evaluation.problems import solve
from latent_tokens.tasks import Solvable, description, differing_settings, errors_of
from latent_tokens.tasks.base import scores_of
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace


class Palindrome(lt.TaskBase):
    length = 10
    vocab = "abcd"
    num_train = 40

    def generate(self, count, seed, first=0):
        halves = [np.random.default_rng((seed, first + i)).integers(4, size=4 + i % 2) for i in range(count)]
        return lt.Examples.padded([[*half, *half[::-1]] for half in halves], 2, self.length)

    def verify(self, tokens):
        return [] if (tokens == tokens[::-1]).all() else ["is not a palindrome"]


class Words(Palindrome):
    vocab = ("red", "green", "blue", "black")
    name = "words"


TASK = Palindrome()


@pytest.mark.parametrize(("task", "text"), [(TASK, "ab.c.a"), (Words(), "red green . blue . red")])
def test_encode_and_decode_are_inverse(task, text):
    problem = task.encode(text)
    tokens = np.where(problem.known, problem.tokens, task.vocab_size)[0, :6]
    assert task.decode(tokens) == text
    assert problem.lengths.tolist() == [6]


def test_prompt_without_blanks_is_followed_by_them():
    problem = TASK.encode("ab")
    assert problem.known.tolist() == [[True, True, *[False] * 8]]
    assert problem.lengths.tolist() == [10]
    assert TASK.encode("ab.").lengths.tolist() == [3]
    maze = type("Maze", (Palindrome,), {"vocab": "# SG"})()
    spaced = maze.encode("#  SG.\n")
    assert spaced.tokens[0, :5].tolist() == [0, 1, 1, 2, 3]
    assert spaced.known[0].tolist() == [*[True] * 5, *[False] * 5]
    assert maze.decode(spaced.tokens[0, :5]) == "#  SG"


def test_prompt_that_is_not_of_the_task_is_refused():
    for task, text, message in (
        (TASK, "abz", "'z': is not a token of Palindrome"),
        (Words(), "red grene", "'grene': is not a token of words. Did you mean green?"),
        (TASK, "a" * 11, "11 tokens: Palindrome has 10 positions. Shorten the text."),
    ):
        with refused(message):
            task.encode(text)


def test_generate_that_fails_is_named_with_its_line(tmp_path):
    task = type("Own", (Palindrome,), {"generate": lambda self, count, seed: None})()
    with refused("generate of Own: fails (TypeError: ", "takes 3 positional arguments", "Correct it."):
        lt.fit("Own", "mdm", task=task, out=tmp_path / "run", steps=1)


def test_vocabulary_that_no_prompt_can_name_is_refused_before_training(tmp_path):
    for vocab, message in (
        ("#.SG", "vocab of Own: must have each token once, and not blank='.'"),
        ("abca", "vocab of Own: must have each token once"),
        (("Rome", "New York"), "vocab of Own: has 'New York', and words have spaces between them"),
        ((1, 2), "vocab of Own: has 1, and must have texts. Use '1'."),
    ):
        task = type("Own", (Palindrome,), {"vocab": vocab})()
        with refused(message):
            lt.fit("Own", "mdm", task=task, out=tmp_path / "run", steps=1)
    assert not (tmp_path / "run").exists()


def test_keys_differ_by_sequence_and_not_by_what_is_given():
    examples = TASK.generate(200, 0)
    texts = [TASK.decode(row[:n]) for row, n in zip(examples.tokens, examples.lengths, strict=True)]
    assert len(set(TASK.keys(examples).tolist())) == len(set(texts))
    other = examples._replace(known=~examples.known)
    assert (TASK.keys(other) == TASK.keys(examples)).all()
    assert set(TASK.splits(examples).tolist()) <= {0, 1, 2}


def test_score_cuts_samples_at_their_lengths():
    truth = lt.Examples.padded([[0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 2, 2, 1, 0]], 2, 6)
    samples = np.array([[0, 1, 1, 0, 2, 2], [0, 0, 0, 0, 2, 2], [0, 1, 0, 2, 1, 0]], np.uint8)
    scores = TASK.score(samples, truth)
    assert scores["valid"].tolist() == [1, 1, 0]
    assert scores["exact"].tolist() == [1, 0, 0]
    assert TASK.score(samples)["valid"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("answer", [np.True_, None, "is not a palindrome"])
def test_verify_that_returns_no_list_is_refused(answer):
    wrong = Palindrome()
    wrong.verify = lambda tokens: answer
    tokens = np.zeros((1, 10), np.uint8)
    for call in (lambda: wrong.score(tokens), lambda: errors_of(wrong, tokens[0], 10)):
        with refused(f"returns {type(answer).__name__}: must be a list of errors, empty if"):
            call()


def test_verify_can_subtract_tokens():
    signed = Palindrome()
    signed.verify = lambda tokens: [f"differ by {step}" for step in np.diff(tokens) if step < 0]
    assert errors_of(signed, np.array([3, 1], np.uint8), 2) == ["differ by -2"]


@dataclass(frozen=True)
class Houses(Palindrome):
    """A task with a field whose name a task of ours has, too."""

    num_houses: int = 3


def test_a_field_is_compared_whatever_its_name():
    assert differing_settings(Houses(5), description(Houses())) == {"num_houses": (5, 3)}


def config_of(out, **changes):
    settings = {"size": "pico", "steps": 1, "threads": 1, **changes}
    if "data" not in changes:
        settings["num_validation"] = 2
    return lt.TrainConfig("mine", "scdm", out / "run", **settings)


@pytest.mark.parametrize(("metric", "value"), [("acuracy", 1.0), ("accuracy", 3.5), ("accuracy", np.nan)])
def test_metric_that_is_no_share_is_refused(metric, value):
    task = Palindrome()
    task.metric = metric
    task.score = lambda tokens, truth=None: {"accuracy": np.array([0.5, value])}
    with refused(f"metric={metric}: score of Palindrome has accuracy"):
        scores_of(task, np.zeros((2, 10), np.uint8), None)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (np.ones(2), "score of Palindrome: returns ndarray, and must return figures by name"),
        ({"valid": 0.5}, "has valid of shape () and type float64: must be a number for each of 2 samples"),
        ({"valid": np.ones(1)}, "has valid of shape (1,) and type float64: must be a number for each of 2"),
        ({"valid": ["yes", "no"]}, "has valid of shape (2,) and type <U3: must be a number for each of 2"),
    ],
)
def test_figures_that_are_not_a_number_per_sample_are_refused(figures, message):
    task = Palindrome()
    task.score = lambda tokens, truth=None: figures
    with refused(message):
        scores_of(task, np.zeros((2, 10), np.uint8), None)
    task.score = lambda tokens, truth=None: {"valid": [True, False]}
    assert scores_of(task, np.zeros((2, 10), np.uint8), None)["valid"].mean() == 0.5


@pytest.mark.parametrize("name", ["length", "order", "num_samples"])
def test_figure_with_the_name_of_another_entry_of_a_row_is_refused(name):
    class Longer(Palindrome):
        def score(self, tokens, truth=None):
            return {**super().score(tokens, truth), name: np.full(len(tokens), 3.5)}

    net = lt.Transformer("pico", 4, 10).eval()
    net.method = lt.METHODS["scdm"]
    with refused(f"score of Longer has {name}: rows have another entry of this name"):
        lt.evaluate(net, Longer(), num_samples=2)


def test_problems_are_made_if_the_first_numbers_have_none():
    class Rare(Palindrome):
        def generate(self, count, seed, first=0):
            return super().generate(count, seed, first).take(slice(16, None))

    assert len(make_problems(Rare(), 2, seed=0)) == 2


def test_task_of_four_members_trains_and_is_evaluated(tmp_path):
    assert isinstance(TASK, lt.Task)
    assert isinstance(TASK, Solvable)
    assert (TASK.name, Words().name, TASK.vocab_size) == ("Palindrome", "words", 4)
    run = lt.fit(config_of(tmp_path), task=TASK)
    net = lt.from_pretrained(run)
    assert '"num_train": 40,' in (run / "config.json").read_text()
    (row,) = lt.evaluate(net, TASK, lt.EvalConfig(num_samples=2, latents=(1,)))
    assert (row["task"], row["metric"], row["num_samples"]) == ("Palindrome", "valid", 2)

    # An answer that is shorter than the task is verified without its end.
    problem = TASK.encode("bcddc.")  # only the last of 6 tokens is decoded
    attempt = solve(net, TASK, problem, lt.Decoding(1, temperature=9.0), seed=0, attempts=32)
    assert (TASK.decode(attempt.tokens[:6]), attempt.wrong) == ("bcddcb", [])
    samples = lt.Model(net, net.method, TASK, tmp_path).generate("bcddc.", num_samples=32, temperature=9.0)
    assert samples.valid.any()
    assert samples.valid.tolist() == [text == "bcddcb" for text in samples.text]


def test_tokenizer_of_a_saved_model_has_the_words_of_the_task(tmp_path):
    from transformers import AutoTokenizer

    task = Words()
    settings = {"size": "pico", "steps": 1, "threads": 1, "num_validation": 2}
    model = lt.train(task, "scdm", out=tmp_path / "run", **settings)
    model.save_pretrained(tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    tokens = task.encode("red green blue black").tokens[0, :4]
    assert tokenizer.decode(tokens.tolist()) == task.decode(tokens) == "red green blue black"


def test_task_is_the_same_under_another_name_of_its_module(tmp_path):
    """As if a command had imported what is now the main script."""
    counts = {"num_train": 8, "num_validation": 2, "num_test": 2, "processes": 1}
    config = lt.DataConfig("own:Task", tmp_path / "data", **counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("latent_tokens.tasks.load_plugin", lambda kind, name: TASK)
        lt.make_data(config)
    other = type("Palindrome", (Palindrome,), {"__module__": "__main__"})()
    run = lt.fit(config_of(tmp_path, data=config.folder), task=TASK)
    assert lt.fit(config_of(tmp_path, data=config.folder, resume="auto"), task=other) == run


def test_share_of_a_sample_and_puzzles_of_several_lengths_are_printed(capsys, monkeypatch, tmp_path):
    task = Palindrome()
    task.metric = "even"
    task.score = lambda tokens, truth=None: {"even": np.full(len(tokens), 0.25)}
    run = lt.fit(config_of(tmp_path), task=task)
    monkeypatch.setattr("latent_tokens.checkpoints.learned.task_named", lambda name: task)
    capsys.readouterr()
    assert main(["sample", str(run), "--task", "own:Task", "--num-samples", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "even 0.25"
    assert main(["sample", str(run), "--task", "own:Task", "--num-samples", "1", "--json"]) == 0
    assert '"even": 0.25' in capsys.readouterr().out
    monkeypatch.setattr("latent_tokens.data.datasets.task_of", lambda config: task)
    assert main(["data", "own:Task", "--show", "4"]) == 0
    assert {len(line) for line in capsys.readouterr().out.split()} == {8, 10}


def test_problems_without_given_tokens_have_the_lengths_of_the_task():
    task = Palindrome()
    given = task.generate
    task.generate = lambda *arguments: replace(given(*arguments), known=given(*arguments).known & False)
    problems = make_problems(task, 12, seed=0)
    assert set(problems.lengths.tolist()) == {8, 10}
    assert task.score(problems.tokens, problems).keys() == {"valid"}


def test_task_without_validation_examples_is_refused(tmp_path):
    task = Palindrome()
    task.generate = lambda count, seed, first=0: lt.Examples.padded([[0, 0]] * count, 0, 10)
    with refused("task=Palindrome: has too few examples", "Widen the task"):
        lt.fit(config_of(tmp_path), task=task)


def test_task_without_a_problem_in_the_test_split_is_refused():
    task = Palindrome()
    task.generate = lambda count, seed, first=0: lt.Examples.padded([[0, 0]] * count, 1, 10)
    task.splits = lambda examples: np.zeros(len(examples), np.int8)
    with refused("task=Palindrome: none of its problems is in the test split", "override its splits"):
        make_problems(task, 2, seed=0)


def test_example_without_an_unknown_position_is_refused(tmp_path):
    def generate(count, seed, first=0):
        examples = TASK.generate(count, seed, first)
        examples.known[[number for number in range(count) if first + number == 3]] = True
        return examples

    task = Palindrome()
    task.generate = generate
    with refused("train example ", ": has nothing to predict"):
        lt.fit(config_of(tmp_path), task=task)
    assert not (tmp_path / "run").exists()
    lt.fit(config_of(tmp_path, noise="all"), task=task)


WRONG = [  # what `generate` returns, and the refusal
    (None, "generate of Palindrome: returns NoneType, and must return Examples"),
    (np.zeros((4, 10), np.uint8), "generate of Palindrome: returns ndarray, and must return Examples"),
    (lt.Examples.of(np.full((1, 10), 0.5), 0), "tokens of type float64: must be whole numbers from 0"),
    (lt.Examples.of(np.full((1, 10), -1), 0), "tokens of type int64: must be whole numbers from 0"),
    (lt.Examples.of(np.full((1, 10), 4), 0), "token 4: Palindrome has the tokens 0-3. Correct vocab"),
    (lt.Examples.of(np.zeros((1, 12), np.uint8), 0), "examples of 12 positions: Palindrome has 10"),
]


def test_wrong_examples_are_refused(tmp_path):
    task = Palindrome()
    for returned, message in WRONG:
        task.generate = lambda count, seed, first=0, returned=returned: returned
        with refused(message):
            lt.dataset(task, "train", 4)
        with refused(message):
            lt.fit(config_of(tmp_path), task=task)


def test_generate_is_called_by_position():
    task = Palindrome()
    task.generate = lambda n, s, f: TASK.generate(count=n, seed=s, first=f)
    assert (lt.dataset(task, "train", 4).tokens == lt.dataset(TASK, "train", 4).tokens).all()
    assert len(make_problems(task, 4, seed=0)) == 4


def test_task_that_is_no_complete_object_is_refused(tmp_path):
    class Short(lt.TaskBase):
        vocab = "ab"
        generate = Palindrome.generate
        verify = Palindrome.verify

    @dataclass(frozen=True)
    class Stored(Palindrome):
        folder: Path = tmp_path

    with refused("task=Short: lacks length or vocab. Set it in the class"):
        lt.fit(config_of(tmp_path), task=Short())
    with refused("task=Stored: ", "Path is not JSON serializable. Fields must be texts"):
        lt.fit(config_of(tmp_path), task=Stored())
    with refused("task=Palindrome: is a class. Use Palindrome()"):
        lt.dataset(Palindrome, "train", 4)


class PaddingGiven(Palindrome):
    """A task that marks the positions past the end of a sequence as given."""

    name = "Palindrome"

    def generate(self, count, seed, first=0):
        examples = super().generate(count, seed, first)
        return lt.Examples.of(examples.tokens, examples.known | ~examples.inside, examples.lengths)


def test_padding_that_is_marked_as_given_changes_no_number():
    torch.manual_seed(0)
    net = lt.Transformer("pico", 4, 10).eval()
    net.method = lt.METHODS["scdm"]
    assert not PaddingGiven().generate(8, seed=0).inside.all()
    of_tasks = []
    for task in (TASK, PaddingGiven()):
        (row,) = lt.evaluate(net, task, num_samples=8)
        nats = lt.nats_along_orders(net, task.generate(8, seed=0)).tolist()
        problem = task.generate(1, seed=0)
        record = trace(DecodeRequest(LoadedModel("pico", net, task), problem, SamplingConfig()))
        counts = [frame["all_processed"] for frame in record["frames"]]
        cost = row["processed"], row["relative_cost"], row["forward_passes"]
        of_tasks.append((cost, nats, counts, record["start"]["all_processed"]))
    assert of_tasks[0] == of_tasks[1]


@pytest.mark.parametrize(
    ("known", "lengths", "message"),
    [
        (np.ones(10, bool), None, "known (10,): must be (2, 10) for tokens (2, 10)"),
        (2, 10, "lengths (): must be (2,) for tokens (2, 10)"),
    ],
)
def test_examples_of_arrays_of_another_shape_are_refused(known, lengths, message):
    tokens = np.zeros((2, 10), np.uint8)
    with refused(message):
        lt.Examples.of(tokens, known, lengths)
    with refused("tokens (10,): must be (N, L)"):
        lt.Examples.of(tokens[0], 2)
    assert lt.Examples.of(tokens, np.int64(2)).known.sum(1).tolist() == [2, 2]
