"""Frames have the decoded tokens, their costs add up, and a verdict marks the wrong cells."""

import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.refusals import refused
from latent_tokens import METHODS, SIZES, TASKS, Decoding, Text, Transformer, growing, left_to_right
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.sampling import generate
from latent_tokens.data.loading import as_tensors
from latent_tokens.page.document import page_with
from latent_tokens.tasks import Sudoku, SudokuPuzzle
from latent_tokens.tasks.zebra import puzzles as zebra
from latent_tokens.trace.boards import view
from latent_tokens.trace.drawing import moments, strip
from latent_tokens.trace.examples import EXAMPLES, examples
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace, verdict_of

PUZZLE = EXAMPLES[4][1]
ALMOST = "641.3232541613462525...3512364463251"


def model(task_name, method="scdm"):
    """Return an untrained model with large weights, so that its input matters."""
    torch.manual_seed(0)
    task = TASKS[task_name]
    net = Transformer(SIZES["nano"], task.vocab_size, task.length).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)
    net.method = METHODS[method]
    return LoadedModel(f"{task_name}-{method}", net, task)


def ask(one, setting=None, puzzle=None):
    return DecodeRequest(one, one.task.encode(puzzle or examples(one.task)[0]), setting or SamplingConfig())


def replayed(found):
    tokens = list(found["start"]["tokens"])
    for frame in found["frames"]:
        for cell, token in frame["chosen"]:
            assert tokens[cell] is None, "a cell is written once"
            tokens[cell] = token
    return tokens


REPLAYED = [
    ("sudoku-4", "scdm", SamplingConfig(), Decoding(8, "all", temperature=0)),
    ("sudoku-4", "scdm", SamplingConfig(latents=3), Decoding(8, 3, temperature=0)),
    ("sudoku-4", "scdm", SamplingConfig(2, None, "uniform", temperature=1.0, seed=5), Decoding(1, 2)),
    (
        "sudoku-4",
        "esolm",
        SamplingConfig(2, "growing", temperature=0.5),
        Decoding(growing, 2, temperature=0.5),
    ),
    ("sudoku-4", "mdm", SamplingConfig(candidates=4), Decoding(4, "all", temperature=0)),
    (
        "sudoku-4",
        "sidm",
        SamplingConfig(order="left_to_right"),
        Decoding(1, order=left_to_right, temperature=0),
    ),
    ("sudoku-4", "ar-mtp", SamplingConfig(), Decoding(1, "all", temperature=0)),
    ("sudoku-6-puzzle", "scdm", SamplingConfig(4, 4), Decoding(4, 4, temperature=0)),
    ("zebra-3", "scdm", SamplingConfig(1, 2, seed=3, temperature=1.0), Decoding(2, 1)),
    ("countdown-3", "mdm", SamplingConfig(), Decoding(8, "all", temperature=0)),
]


@pytest.mark.parametrize(("task", "method", "setting", "decoding"), REPLAYED)
def test_frames_replay_to_what_generate_gives(task, method, setting, decoding):
    one = model(task, method)
    request = ask(one, setting)
    found = trace(request)
    tokens, known, lengths = as_tensors(request.problem)
    made = generate(one.net, one.net.method, tokens, known, decoding, setting.seed, lengths=lengths)
    drawn = view(one.task, request.problem)
    assert replayed(found) == made.tokens[0, list(drawn.positions)].tolist()
    assert found["end"]["processed"] == found["frames"][-1]["processed"] == int(made.processed[0])
    assert found["end"]["wrong"] == one.task.verify(made.tokens[0].numpy().astype(np.uint8))
    assert len(found["frames"]) == made.forward_passes
    assert json.loads(json.dumps(found)) == found


def test_a_padded_board_draws_its_cells_alone():
    task = Sudoku("sudoku-4", 2, 2, padding="paper")
    torch.manual_seed(0)
    net = Transformer(SIZES["nano"], task.vocab_size, task.length).eval()
    net.method = METHODS["scdm"]
    found = trace(DecodeRequest(LoadedModel("padded", net, task), task.encode(PUZZLE), SamplingConfig(2, 2)))
    assert len(found["frames"]) == task.length - sum(sign != "." for sign in PUZZLE)
    assert sum(len(frame["chosen"]) for frame in found["frames"]) == PUZZLE.count(".")
    assert None not in replayed(found)


def test_cost_of_all_latents_is_the_number_of_slots():
    one = model("sudoku-4")
    few, every = (trace(ask(one, SamplingConfig(latents, 3), PUZZLE)) for latents in (2, "all"))
    of_all = [frame["processed"] for frame in every["frames"]]
    assert [frame["all_processed"] for frame in few["frames"]] == of_all
    assert few["start"]["all_processed"] == every["end"]["processed"] == every["frames"][-1]["all_processed"]
    assert few["end"]["processed"] < every["end"]["processed"]
    open_cells = PUZZLE.count(".")
    shown = [16 - left + min(left, 5) for left in range(open_cells, 0, -1)]
    assert [frame["processed"] for frame in few["frames"]] == np.cumsum(shown).tolist()


def test_frame_has_candidates_latents_and_predictions():
    one = model("sudoku-4")
    found = trace(ask(one, SamplingConfig(3, 4), PUZZLE))
    tokens = list(found["start"]["tokens"])
    for number, frame in enumerate(found["frames"]):
        open_cells = {cell for cell, token in enumerate(tokens) if token is None}
        candidates, latents = set(frame["candidates"]), set(frame["latents"])
        assert frame["step"] == number
        counts = (min(4, len(open_cells)), min(3, max(len(open_cells) - 4, 0)))
        assert (len(candidates), len(latents)) == counts
        assert candidates | latents <= open_cells
        assert not candidates & latents
        assert {int(cell) for cell in frame["beliefs"]} == candidates | latents
        for pairs in frame["beliefs"].values():
            values = [value for _, value in pairs]
            assert values == sorted(values, reverse=True)
            assert sum(values) == pytest.approx(1, abs=0.01)
        ((cell, token),) = frame["chosen"]
        likeliest = {candidate: frame["beliefs"][str(candidate)][0] for candidate in candidates}
        assert likeliest[cell][0] == token  # at temperature 0
        assert likeliest[cell][1] == max(value for _, value in likeliest.values())  # top-prob
        tokens[cell] = token


def test_beliefs_are_what_the_network_says():
    one = model("sudoku-4", "mdm")
    first = trace(ask(one, SamplingConfig(), PUZZLE))["frames"][0]
    tokens, known, _ = as_tensors(one.task.encode(PUZZLE))
    ids = tokens.masked_fill(~known, one.net.mask_id)
    with torch.no_grad():
        logits = one.net(ids, torch.arange(16)[None], torch.ones(1, 16, 16, dtype=torch.bool))[0]
    seen = logits[:, :4].softmax(-1)  # without MASK
    for cell, pairs in first["beliefs"].items():
        for token, value in pairs:
            assert value == pytest.approx(float(seen[int(cell), token]), abs=1e-3)


def test_start_says_how_to_draw():
    start = trace(ask(model("sudoku-6"), SamplingConfig(4, 8, seed=7)))["start"]
    assert (start["kind"], start["side"], start["box"], start["columns"]) == ("sudoku", 6, [2, 3], 6)
    assert start["signs"] == ["1", "2", "3", "4", "5", "6"]
    signs = ("." if token is None else start["signs"][token] for token in start["tokens"])
    assert "".join(signs) == examples(TASKS["sudoku-6"])[0]
    settings = {"latents": 4, "candidates": 8, "order": "top_prob", "temperature": 0.0, "seed": 7}
    assert start["settings"] == settings
    one = model("zebra-3")
    start = trace(ask(one))["start"]
    assert (start["kind"], start["columns"], start["heads"]) == ("zebra", 3, ["A", "B", "C"])
    drawn = one.task.decode(one.task.encode(examples(one.task)[0]).tokens[0])
    assert all(line in drawn for line in start["words"])
    assert start["signs"][zebra.DIGIT + 2] == "3"
    start = trace(ask(model("countdown-3"), puzzle="4,5,6,14"))["start"]
    assert (start["kind"], start["words"]) == ("countdown", ["4", "5", "6", "14"])
    assert set(start["tokens"]) == {None}


def test_broken_cells_are_those_whose_value_repeats():
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
        assert broken(changed) == sorted(twice)
        assert cell in twice


def test_a_puzzle_board_is_broken_where_it_changes_what_is_given():
    task = SudokuPuzzle("sudoku-4-puzzle", 2, 2)
    problem = task.generate(1, seed=0)
    tokens = problem.tokens[0].copy()
    broken = view(task, problem).broken
    assert broken(tokens) == []
    answer = tokens[task.start :]
    answer[:] = np.where(answer == 1, 2, np.where(answer == 2, 1, answer))  # a valid board of its own
    given = task.givens(problem.tokens)[0]
    assert broken(tokens) == np.flatnonzero((given == 0) | (given == 1)).tolist()


def test_zebra_table_is_broken_at_repeats_and_forbidden_values():
    task = TASKS["zebra-3"]
    problem = task.generate(1, seed=0)
    tokens, start = problem.tokens[0], int(problem.known[0].sum())
    drawn = view(task, problem)
    assert drawn.broken(tokens) == []
    twice = tokens.copy()
    twice[start] = twice[start + 1]
    assert {0, 1} <= set(drawn.broken(twice))
    swapped = tokens.copy()
    swapped[[start, start + 1]] = swapped[[start + 1, start]]
    found = drawn.broken(swapped)
    assert task.verify(swapped)
    assert set(found) & {0, 1}, "each value stands once, and a clue names one that moved"


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("86+13=99,31-28=3,99-3=96", []),
        ("86+13=98,31-28=3,99-3=96", ["86+13=98"]),
        ("86+13=99,31-28,99-3=96", ["31-28"]),
        ("86+13=99,31-28=3,99+3=102", ["102"]),
    ],
)
def test_equations_are_broken_where_they_are_not_true(answer, wrong):
    task = TASKS["countdown-4"]
    problem = task.encode("86,28,13,31,96")
    tokens = problem.tokens[0].copy()
    drawn = view(task, problem)
    for place, sign in zip(drawn.positions, answer, strict=False):
        tokens[place] = drawn.signs.index(sign, 4)
    tokens[drawn.positions[len(answer)]] = 2
    assert bool(task.verify(tokens)) == bool(wrong)
    assert "".join(answer[cell] for cell in drawn.broken(tokens)) == "".join(wrong)


SOLVED = (
    *("sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36", "sudoku-6-puzzle"),
    *("zebra-3", "zebra", "countdown-3"),
)


@pytest.mark.parametrize("task", SOLVED)
def test_examples_can_be_solved(task):
    task = TASKS[task]
    found = examples(task)
    assert len(found) >= 2
    for puzzle in found:
        count = task.count_solutions(task.encode(puzzle), most=2)
        assert count is None or count >= 1
        if "." in puzzle and set(puzzle) != {"."} and task.grid.side < 16:
            assert count == 1


def test_impossible_decode_is_refused_before_it_begins():
    for method, setting, puzzle, message in (
        ("scdm", SamplingConfig(), "123....4........", "puzzle has no solution"),
        ("scdm", SamplingConfig(), "1234341221434321", "nothing to solve"),
        ("sidm", SamplingConfig(latents=2), None, "latents=2 is not supported by sidm"),
        ("arm", SamplingConfig(), PUZZLE, "not a prefix"),
        ("ar-mtp", SamplingConfig(order="top_prob"), None, "order=top_prob is not supported by ar-mtp"),
    ):
        with refused(message):
            ask(model("sudoku-4", method), setting, puzzle)


def test_trace_of_a_text_has_its_tokens_and_no_errors():
    text = Text(16)
    net = Transformer(SIZES["nano"], text.vocab_size, 16).eval()
    net.method = METHODS["scdm"]
    problem = text.encode("a b ____ c")
    made = trace(
        DecodeRequest(LoadedModel("text", net, text), problem, SamplingConfig(2, 2, "top_prob", seed=1))
    )
    start = made["start"]
    shown = "".join("_" if token is None else start["signs"][token] for token in start["tokens"])
    assert (start["kind"], shown) == ("text", "a b ____ c")
    assert [len(frame["chosen"]) for frame in made["frames"]] == [1] * 4
    assert {cell for frame in made["frames"] for cell, _ in frame["chosen"]} == {4, 5, 6, 7}
    assert (made["end"]["wrong"], verdict_of(made)) == ([], "decoded")


@pytest.fixture(scope="module")
def traces():
    one = model("sudoku-4")
    return [trace(ask(one, SamplingConfig(latents), "1.3434.22.4343.1")) for latents in (0, "all")]


def test_pictures_hold_every_step(traces):
    steps = len(traces[0]["frames"])
    assert [moment.tokens.count(None) for moment in moments(traces[0])] == list(range(steps, -1, -1))
    still, alone = (Image.open(io.BytesIO(strip(shown))) for shown in (traces, traces[:1]))
    assert still.format == "PNG"
    assert still.height > 1.5 * alone.height
    assert still.width == alone.width


def test_a_page_with_traces_reads_as_they_were(traces):
    start = {**traces[0]["start"], "model": "</script><script>alert(1)</script><!--"}
    sneaky = [{**traces[0], "start": start}, traces[1]]
    made = page_with(sneaky)
    inlined = re.search(r'<script type="application/json" id="traces">(.*?)</script>', made, re.S)[1]
    assert json.loads(inlined) == sneaky
    assert made.count("alert(1)") == 1
    assert "<script>alert" not in made
    with pytest.raises(ValueError, match="more than 2 MB"):
        page_with(sneaky * 5_000)


def test_trace_writes_what_is_asked_for_and_writes_over_nothing(tmp_path, capsys):
    page, png = tmp_path / "a.html", tmp_path / "a.png"
    command = ["trace", "sudoku-6-scdm", ALMOST, "-o", str(page)]
    options = ["--latents", "4", "--compare", "0", "--png", str(png)]
    assert main([*command, *options]) == 0
    said = capsys.readouterr().out
    assert "x of all, 4 latent tokens per step, fewer in the last steps\n" in said
    assert "x of all, 0 latent tokens\n" in said
    assert "Chosen example" not in said
    inlined = re.search(r'id="traces">(.*?)</script>', page.read_text(), re.S)[1]
    assert [found["start"]["settings"]["latents"] for found in json.loads(inlined)] == [4, 0]
    assert png.read_bytes()[1:4] == b"PNG"
    before = page.read_bytes()
    assert main([*command, *options]) == 2
    assert capsys.readouterr().err.endswith("a.html: exists. Choose another name, or add --replace.\n")
    assert page.read_bytes() == before
    assert main([*command, "--compare", "sudoku-6-mdm", "--replace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in lines[:2]:
        assert line.endswith(", all masked tokens that are not candidates are latent tokens")
    assert lines[1].startswith("sudoku-6-mdm: ")
    assert page.read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to write"),
        (["-o", "nowhere/at/all.html"], "its directory does not exist"),
        (["-o", "x.html", "--latents", "-3"], "--latents -3: must be"),
        (["-o", "x.html", "--compare", "none-such"], "'none-such' not found: not a run directory"),
        (["-o", "x.html", "--png", "x.html"], "must end with .png"),
    ],
)
def test_trace_refuses_in_one_line(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "sudoku-6-scdm", ALMOST, *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
