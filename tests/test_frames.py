"""Frames have the decoded tokens, their costs add up, a verdict marks wrong cells, and a text is drawn."""

import io
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text as Words
from PIL import Image, ImageColor
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from helpers.page import untrained as model
from helpers.refusals import refused_command
from latent_tokens import TASKS, Decoding, Text, growing, left_to_right
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.sampling import generate
from latent_tokens.data.loading import as_tensors
from latent_tokens.palette import PAGE
from latent_tokens.tasks import Sudoku, SudokuPuzzle
from latent_tokens.tasks.zebra import puzzles as zebra
from latent_tokens.trace.boards import view
from latent_tokens.trace.drawing import figure, moments, strip
from latent_tokens.trace.examples import EXAMPLES, examples
from latent_tokens.trace.record import DecodeRequest, trace, verdict_of
from latent_tokens.trace.terminal import PART, TERMINAL_STYLES, watching, whole_characters

PUZZLE = EXAMPLES[4][1]
ALMOST = "641.3232541613462525...3512364463251"


def puzzle_of(task):
    return examples(task)[0] if isinstance(task, Sudoku) else task.prompt(task.generate(1, seed=0))


def ask(loaded, setting=None, puzzle=None):
    problem = loaded.task.encode(puzzle or puzzle_of(loaded.task))
    return DecodeRequest(loaded, problem, setting or SamplingConfig())


def replayed(recorded):
    """Return the tokens after the last frame. Each is decoded once."""
    tokens = list(recorded["start"]["tokens"])
    for frame in recorded["frames"]:
        for cell, token in frame["chosen"]:
            assert tokens[cell] is None
            tokens[cell] = token
    return tokens


GREEDY, WARM = {"temperature": 0}, {"temperature": 0.5}
REPLAYED = [
    ("sudoku-4", "scdm", SamplingConfig(3), Decoding(8, 3, **GREEDY)),
    ("sudoku-4", "scdm", SamplingConfig(2, None, "uniform", temperature=1.0, seed=5), Decoding(1, 2)),
    ("sudoku-4", "esolm", SamplingConfig(2, "growing", temperature=0.5), Decoding(growing, 2, **WARM)),
    ("sudoku-4", "mdm", SamplingConfig(candidates=4), Decoding(4, "all", **GREEDY)),
    ("sudoku-4", "sidm", SamplingConfig(order="left_to_right"), Decoding(1, order=left_to_right, **GREEDY)),
    ("sudoku-4", "ar-mtp", SamplingConfig(), Decoding(1, "all", **GREEDY)),
    ("sudoku-6-puzzle", "scdm", SamplingConfig(4, 4), Decoding(4, 4, **GREEDY)),
    ("zebra-3", "scdm", SamplingConfig(1, 2, seed=3, temperature=1.0), Decoding(2, 1)),
    ("countdown-3", "mdm", SamplingConfig(), Decoding(8, "all", **GREEDY)),
]  # fmt: skip


@pytest.mark.parametrize(("task", "method", "setting", "decoding"), REPLAYED)
def test_frames_replay_to_the_sample_of_generate(task, method, setting, decoding):
    loaded = model(task, method)
    request = ask(loaded, setting)
    recorded = trace(request)
    tokens, known, lengths = as_tensors(request.problem)
    expected = generate(loaded.net, loaded.net.method, tokens, known, decoding, setting.seed, lengths=lengths)
    sample = expected.tokens[0]
    assert replayed(recorded) == sample[list(view(loaded.task, request.problem).positions)].tolist()
    assert (
        recorded["end"]["processed"]
        == recorded["frames"][-1]["processed"]
        == int(expected.tokens_processed[0])
    )
    assert recorded["end"]["wrong"] == loaded.task.verify(sample.numpy().astype(np.uint8))
    assert len(recorded["frames"]) == expected.forward_passes
    assert json.loads(json.dumps(recorded)) == recorded


def test_a_padded_board_draws_its_cells_alone():
    padded = model(Sudoku("sudoku-4", 2, 2, padding="paper"))
    recorded = trace(ask(padded, SamplingConfig(2, 2), PUZZLE))
    assert len(recorded["frames"]) == padded.task.length - sum(sign != "." for sign in PUZZLE)
    assert sum(len(frame["chosen"]) for frame in recorded["frames"]) == PUZZLE.count(".")
    assert None not in replayed(recorded)


def test_cost_of_all_latents_is_the_number_of_slots():
    loaded = model("sudoku-4")
    few, every = (trace(ask(loaded, SamplingConfig(latents, 3), PUZZLE)) for latents in (2, "all"))
    with_all = [frame["processed"] for frame in every["frames"]]
    assert [frame["all_processed"] for frame in few["frames"]] == with_all
    assert few["start"]["all_processed"] == every["end"]["processed"] == with_all[-1]
    slots = [16 - masked + min(masked, 5) for masked in range(PUZZLE.count("."), 0, -1)]
    assert [frame["processed"] for frame in few["frames"]] == np.cumsum(slots).tolist()


def test_frame_has_candidates_latents_and_predictions():
    recorded = trace(ask(model("sudoku-4"), SamplingConfig(3, 4), PUZZLE))
    tokens = list(recorded["start"]["tokens"])
    for number, frame in enumerate(recorded["frames"]):
        masked = {cell for cell, token in enumerate(tokens) if token is None}
        candidates, latents = set(frame["candidates"]), set(frame["latents"])
        assert frame["step"] == number
        counts = (min(4, len(masked)), min(3, max(len(masked) - 4, 0)))
        assert (len(candidates), len(latents)) == counts
        assert candidates | latents <= masked
        assert not candidates & latents
        assert {int(cell) for cell in frame["beliefs"]} == candidates | latents
        for pairs in frame["beliefs"].values():
            values = [value for _, value in pairs]
            assert values == sorted(values, reverse=True)
            assert sum(values) == pytest.approx(1, abs=0.01)
        ((cell, token),) = frame["chosen"]
        most_probable = {candidate: frame["beliefs"][str(candidate)][0] for candidate in candidates}
        assert most_probable[cell][0] == token  # at temperature 0
        assert most_probable[cell][1] == max(value for _, value in most_probable.values())  # top-prob
        tokens[cell] = token


def test_predictions_of_a_frame_are_those_of_the_network():
    loaded = model("sudoku-4", "mdm")
    first = trace(ask(loaded, puzzle=PUZZLE))["frames"][0]
    tokens, known, _ = as_tensors(loaded.task.encode(PUZZLE))
    ids = tokens.masked_fill(~known, loaded.net.mask_id)
    with torch.no_grad():
        logits = loaded.net(ids, torch.arange(16)[None], torch.ones(1, 16, 16, dtype=torch.bool))[0]
    predicted = logits[:, :4].softmax(-1)  # without MASK
    for cell, pairs in first["beliefs"].items():
        expected = {token: float(predicted[int(cell), token]) for token, _ in pairs}
        assert dict(pairs) == pytest.approx(expected, abs=1e-3)


def test_start_has_what_is_drawn():
    start = trace(ask(model("sudoku-6"), SamplingConfig(4, 8, seed=7)))["start"]
    assert (start["kind"], start["side"], start["box"], start["columns"]) == ("sudoku", 6, [2, 3], 6)
    assert start["signs"] == [*"123456"]
    signs = ("." if token is None else start["signs"][token] for token in start["tokens"])
    assert "".join(signs) == examples(TASKS["sudoku-6"])[0]
    settings = {"latents": 4, "candidates": 8, "order": "top_prob", "temperature": 0.0, "seed": 7}
    assert start["settings"] == settings
    houses = model("zebra-3")
    start = trace(ask(houses))["start"]
    assert (start["kind"], start["columns"], start["heads"]) == ("zebra", 3, ["A", "B", "C"])
    clues = houses.task.decode(houses.task.encode(puzzle_of(houses.task)).tokens[0])
    assert all(line in clues for line in start["words"])
    assert start["signs"][zebra.DIGIT + 2] == "3"
    start = trace(ask(model("countdown-3"), puzzle="4,5,6,14"))["start"]
    assert (start["kind"], start["words"]) == ("countdown", ["4", "5", "6", "14"])
    assert set(start["tokens"]) == {None}


def test_trace_of_a_text_has_its_tokens_and_no_errors():
    recorded = trace(ask(model(Text(16)), SamplingConfig(2, 2, "top_prob", seed=1), "a b ____ c"))
    start = recorded["start"]
    shown = "".join("_" if token is None else start["signs"][token] for token in start["tokens"])
    assert (start["kind"], shown) == ("text", "a b ____ c")
    assert sorted(cell for frame in recorded["frames"] for cell, _ in frame["chosen"]) == [4, 5, 6, 7]
    assert (recorded["end"]["wrong"], verdict_of(recorded)) == ([], "decoded")
    beliefs = (pairs for frame in recorded["frames"] for pairs in frame["beliefs"].values())
    seen = {*start["tokens"], *(token for pairs in beliefs for token, _ in pairs)}
    chosen = {token for frame in recorded["frames"] for _, token in frame["chosen"]}
    shown = {token for token, sign in enumerate(start["signs"]) if sign}
    assert len(start["signs"]) == 257
    assert shown <= seen | chosen
    assert {token for token in chosen if 32 < token < 127} <= shown


def test_wrong_cells_are_those_whose_value_repeats():
    task = TASKS["sudoku-6"]
    board = task.generate(1, seed=1).tokens[0]
    broken = view(task, task.encode("." * 36)).broken
    assert broken(board) == []
    for cell in range(36):
        changed = board.copy()
        changed[cell] = (board[cell] + 1) % 6
        twice = set()
        for unit in task.grid.cells_of.tolist():
            twice |= {a for a in unit for b in unit if a != b and changed[a] == changed[b]}
        assert cell in twice
        assert broken(changed) == sorted(twice)


def test_a_puzzle_board_is_wrong_where_it_changes_a_given_cell():
    task = SudokuPuzzle("sudoku-4-puzzle", 2, 2)
    problem = task.generate(1, seed=0)
    tokens = problem.tokens[0].copy()
    broken = view(task, problem).broken
    assert broken(tokens) == []
    answer = tokens[task.start :]
    answer[:] = np.where(answer == 1, 2, np.where(answer == 2, 1, answer))  # another valid board
    given = task.givens(problem.tokens)[0]
    assert broken(tokens) == np.flatnonzero((given == 0) | (given == 1)).tolist()


def test_zebra_table_is_wrong_at_repeats_and_forbidden_values():
    task = TASKS["zebra-3"]
    problem = task.generate(1, seed=0)
    tokens, start = problem.tokens[0], int(problem.known[0].sum())
    broken = view(task, problem).broken
    assert broken(tokens) == []
    twice = tokens.copy()
    twice[start] = twice[start + 1]
    assert {0, 1} <= set(broken(twice))
    swapped = tokens.copy()
    swapped[[start, start + 1]] = swapped[[start + 1, start]]
    assert task.verify(swapped)
    assert set(broken(swapped)) & {0, 1}  # each value is in the table once, and a clue names one that moved


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("86+13=99,31-28=3,99-3=96", ""),
        ("86+13=98,31-28=3,99-3=96", "86+13=98"),
        ("86+13=99,31-28,99-3=96", "31-28"),
        ("86+13=99,31-28=3,99+3=102", "102"),
    ],
)
def test_equations_are_wrong_where_they_are_not_true(answer, wrong):
    task = TASKS["countdown-4"]
    problem = task.encode("86,28,13,31,96")
    tokens = problem.tokens[0].copy()
    drawn = view(task, problem)
    for position, sign in zip(drawn.positions, answer, strict=False):
        tokens[position] = drawn.signs.index(sign, 4)
    tokens[drawn.positions[len(answer)]] = 2
    assert bool(task.verify(tokens)) == bool(wrong)
    assert "".join(answer[cell] for cell in drawn.broken(tokens)) == wrong
    assert drawn.broken(problem.tokens[0]) == [0]  # of an empty answer


@pytest.mark.parametrize("name", ["sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16"])
def test_examples_can_be_solved(name):
    task = TASKS[name]
    counts = {puzzle: task.count_solutions(task.encode(puzzle), most=2) for puzzle in examples(task)}
    assert len(counts) >= 2
    for puzzle, count in counts.items():
        has_one_solution = "." in puzzle and set(puzzle) != {"."} and task.grid.side < 16
        assert count == 1 if has_one_solution else count is None or count >= 1


def test_pictures_have_every_step_in_the_colors_of_the_page():
    loaded = model("sudoku-4")
    traces = [trace(ask(loaded, SamplingConfig(latents, 3), PUZZLE)) for latents in (2, "all")]
    steps = len(traces[0]["frames"])
    assert [moment.tokens.count(None) for moment in moments(traces[0])] == list(range(steps, -1, -1))
    both, single = (Image.open(io.BytesIO(strip(shown))) for shown in (traces, traces[:1]))
    assert both.format == "PNG"
    assert both.height > 1.5 * single.height
    assert both.width == single.width
    colors = {color for _, color in both.convert("RGB").getcolors(1 << 24)}
    names = ("ink", "faint", "blue", "blue-wash", "orange-wash", "orange-line")
    assert {ImageColor.getrgb(PAGE[name]) for name in names} <= colors


@pytest.mark.parametrize("task", ["zebra-3", "zebra-compact-3", "countdown-3", "sudoku-6-puzzle", "text"])
def test_words_in_a_picture_neither_overlap_nor_leave_it(task):
    """The problem, titles, tokens, captions and the legend."""
    loaded = model(Text(40) if task == "text" else task)
    puzzle = "One ____ more" if task == "text" else puzzle_of(loaded.task)
    recorded = trace(ask(loaded, SamplingConfig(1, 2, "top_prob"), puzzle))
    picture = figure(moments(recorded)[-2:], 2)
    canvas = FigureCanvasAgg(picture)
    canvas.draw()
    words = [text for text in picture.findobj(Words) if text.get_visible() and text.get_text().strip()]
    boxes = [text.get_window_extent(canvas.renderer) for text in words]
    inside = picture.bbox.padded(1)
    assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 and box.y1 <= inside.y1 for box in boxes)
    overlaps = [
        (a.get_text(), b.get_text())
        for (a, one), (b, other) in itertools.combinations(zip(words, boxes, strict=True), 2)
        if one.padded(-1).overlaps(other.padded(-1))
    ]
    assert overlaps == []
    drawn = "\n".join(text.get_text() for text in words)
    assert all(part in drawn for part in recorded["start"]["words"])
    sizes = {text.get_fontsize() for text in words}
    assert min(sizes) >= 6.5


def test_any_token_is_drawn():
    """Dollar signs are no formula. A latent token has no guess if all probabilities round to 0."""
    recorded = trace(ask(model("sudoku-4"), SamplingConfig(2, 3), PUZZLE))
    recorded["start"]["signs"] = ["$$"] * 4
    beliefs = recorded["frames"][0]["beliefs"]
    beliefs[str(recorded["frames"][0]["latents"][0])] = []
    assert Image.open(io.BytesIO(strip([recorded]))).format == "PNG"


def test_trace_writes_its_page_and_picture_and_replaces_nothing(tmp_path, capsys):
    page, png = tmp_path / "a.html", tmp_path / "a.png"
    command = ["trace", "sudoku-6-scdm", ALMOST, "-o", str(page)]
    options = ["--latents", "4", "--compare", "0", "--png", str(png)]
    assert main([*command, *options]) == 0
    printed = capsys.readouterr().out
    assert "x of all, 4 latent tokens per step, fewer in the last steps\n" in printed
    assert "x of all, 0 latent tokens\n" in printed
    inlined = re.search(r'id="traces">(.*?)</script>', page.read_text(), re.S)[1]
    assert [recorded["start"]["settings"]["latents"] for recorded in json.loads(inlined)] == [4, 0]
    assert png.read_bytes()[1:4] == b"PNG"
    before = page.read_bytes()
    problem = "a.html: exists. Choose another name, or add --replace."
    refused_command(capsys, [*command, *options], problem)
    assert page.read_bytes() == before
    assert main([*command, "--compare", "sudoku-6-mdm", "--replace"]) == 0
    scdm, mdm, *_ = capsys.readouterr().out.splitlines()
    assert scdm.endswith(", all masked tokens that are not candidates are latent tokens")
    assert mdm.startswith("sudoku-6-mdm: ")
    assert page.read_bytes() != before


# Text in the terminal: each step, with complete characters or a sign in their place.


def step(clean, chosen, tokens, latents, candidates):
    of_step = {"clean": [clean], "latents": [latents], "candidates": [candidates]}
    return SimpleNamespace(chosen=torch.tensor([chosen]), tokens=torch.tensor([tokens]), **of_step)


def test_every_step_is_drawn_in_its_colors(monkeypatch):
    pictures = []
    names = {style: name for name, style in TERMINAL_STYLES.items()}

    class Live:
        def __init__(self, picture, **options):
            self.update(picture)

        def update(self, picture):
            start = picture.plain.index("\n\n") + 2  # after the legend
            spans = [part for part in picture.spans if part.start >= start]
            pictures.append([(picture.plain[part.start : part.end], names[part.style]) for part in spans])

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *of: None  # noqa: E731

    monkeypatch.setattr("latent_tokens.trace.terminal.Live", Live)
    first, second = "é".encode()
    tokens = torch.tensor([[97, 0, 0, 0, 0, 98]])
    with watching(Text(6), tokens, tokens == 97, torch.tensor([5])) as on_step:
        on_step(step([0], [2, -1], [99, -1], [3], [2, 1]))
        on_step(step([0, 2], [3], [first], [], [3]))
        on_step(step([0, 2, 3], [4], [second], [], [4]))
        on_step(step([0, 3, 4], [1], [100], [], [1]))  # 2 is masked again
    a, dot, box = ("a", "known"), ("·", "open"), "□"
    assert pictures == [
        [a, dot, dot, dot, dot],
        [a, (box, "candidate"), ("c", "new"), (box, "latent"), dot],
        [a, dot, ("c", "decoded"), (PART, "new"), dot],
        [a, dot, ("c", "decoded"), ("é", "new")],
        [a, ("d", "new"), dot, ("é", "decoded")],
        [a, ("d", "decoded"), dot, ("é", "decoded")],
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
