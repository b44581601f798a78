"""research/: every script prints its stored table, and what it measures is what it says."""

import hashlib
import importlib.util
import json
import re
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from helpers.documentation import ROOT
from helpers.oracle import Oracle, small_joint
from helpers.runs import description, tiny_run
from helpers.tiny_models import tiny_model
from latent_tokens import (
    METHODS,
    TASKS,
    DataConfig,
    Decoding,
    PolicyInput,
    Transformer,
    check_network,
    fit,
    make_data,
)
from latent_tokens.core.sampling import generate
from latent_tokens.evaluation.intervals import wilson

RESEARCH = ROOT / "research"
FOLDERS = sorted(path.parent.name for path in RESEARCH.glob("*/README.md"))
TASK = TASKS["sudoku-4"]


def script_of(folder):
    """Import the script of a folder."""
    path = RESEARCH / folder / f"{folder.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


adapting = script_of("adapting")
dead_ends = script_of("dead-ends")
predictions = script_of("predictions")
samplers = script_of("samplers")
timing = script_of("timing")
latent_choice = script_of("latent-choice")
nats = script_of("nats")
confidence = script_of("confidence")
script_of("order")
contradictions = sys.modules["contradictions"]
script_of("alternatives")
networks = sys.modules["networks"]
tables = sys.modules["tables"]
curves = importlib.import_module("curves")  # the scripts have put its folder on the path


@pytest.mark.parametrize("folder", FOLDERS)
def test_script_prints_the_stored_table(folder, capsys):
    script_of(folder).main()
    assert capsys.readouterr().out == (RESEARCH / folder / "table.md").read_text()


# Of a 4x4 board: the first cells of the order, their digits, the step of the loss, how it shows, its reach.
LOSSES = [
    ([0, 1, 2, 7, 3], [1, 2, 3, 4, 1], (3, "cell", 1)),  # 4 in the box of the last cell of row 1
    ([0, 1, 2, 7, 4, 3], [1, 2, 3, 4, 3, 1], (3, "cell", 2)),
    ([0, 1, 7, 2, 3], [1, 2, 4, 3, 1], (2, "unit", 2)),  # 3 alone is left for two cells
    ([0, 1, 2], [1, 1, 3], (1, "repetition", 0)),
]


@pytest.mark.parametrize(("first", "digits", "expected"), LOSSES)
def test_loss_of_a_board_is_that_worked_out_by_hand(first, digits, expected):
    order = np.array([*first, *(cell for cell in range(16) if cell not in first)])
    board = np.ones(16, np.int64)
    board[first] = digits
    peers = contradictions.peers_of(TASK)
    step, after = contradictions.first_loss(board, order, peers)
    assert (step, *contradictions.kind_and_reach(after, order, step, TASK, peers)) == expected


OTHERS = [  # a network that spends operations otherwise, and its loops and registers
    (networks.Looped, {"loops": 4}),
    (partial(networks.Registers, 4), {"registers": 4}),
    (networks.Quiet, {}),
]


@pytest.mark.parametrize(("network", "settings"), OTHERS)
@pytest.mark.parametrize("slots", [5, 16])
def test_operations_are_those_that_torch_counts(network, settings, slots):
    net = network("pico", 4, 16, positions="learned").eval()
    inputs = (torch.tensor([1] * 3 + [4] * (slots - 3))[None], torch.arange(slots)[None])
    mask = torch.ones(1, slots, slots, dtype=torch.bool)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        net(*inputs, mask)
    assert networks.flops(net, slots, **settings) == counter.get_total_flops()


def test_other_networks_differ_from_a_transformer_as_they_say():
    shape = ("pico", TASK.vocab_size, TASK.length, "learned")
    plain = Transformer(*shape).eval()
    ids, positions = torch.tensor([[1, 2] + [plain.mask_id] * 6]), torch.arange(8)[None]
    masked = torch.arange(8) >= 2
    mask = (~masked | torch.eye(8, dtype=torch.bool))[None]  # the rule of sidm
    looped, registers, quiet = networks.Looped(*shape), networks.Registers(3, *shape), networks.Quiet(*shape)
    for net in (looped, registers, quiet):
        net.load_state_dict(plain.state_dict(), strict=False)
        check_network(net.eval(), METHODS["sidm"], TASK.length, TASK.vocab_size)
    expected = plain(ids, positions, mask)

    # One loop is a plain pass, and four are not. Registers act on masked tokens only.
    looped.loops = 1
    torch.testing.assert_close(looped(ids, positions, mask), expected)
    looped.loops = 4
    assert not torch.allclose(looped(ids, positions, mask), expected, atol=1e-2)
    changed = (registers(ids, positions, mask) - expected).abs().amax(-1)[0] > 1e-4
    assert changed.tolist() == masked.tolist()

    # The first four masked tokens and no others learn nothing, unless one is the last.
    logits = quiet(ids, positions, mask)
    torch.testing.assert_close(logits, expected)
    learns = [bool(torch.autograd.grad(logits[0, i].sum(), quiet.head.weight, retain_graph=True)[0].any())
              for i in range(8)]  # fmt: skip
    assert learns == [True, True, False, False, False, False, True, True]


def test_figures_are_drawn_from_the_stored_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "HERE", tmp_path)
    for name in ("adapting", "candidates", "depth", "equal-compute", "nats", "training", "worth"):
        (tmp_path / name).mkdir()
        curves.DRAWN[name]()
        drawn, stored = (folder / name / f"{name}.svg" for folder in (tmp_path, RESEARCH))
        paths = [re.findall(r' d="([^"]+)"', path.read_text()) for path in (drawn, stored)]
        assert len(paths[0]) > 50
        assert paths[0] == paths[1]


def test_every_folder_is_in_the_list_of_questions():
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1/README.md\)", (RESEARCH / "README.md").read_text(), re.M)
    assert sorted(listed) == FOLDERS


def test_rows_are_those_of_the_checksums():
    assert (RESEARCH / "SHA256SUMS").read_text() == tables.checksums()
    for line in tables.checksums().splitlines():
        checksum, name = line.split("  ")
        assert hashlib.sha256((RESEARCH / name).read_bytes()).hexdigest() == checksum


def intervals_in(text):
    """Return every "(LOW to HIGH)" of a text, whether it has zero inside, and its bounds without signs."""
    bounds = re.findall(r"(?<=[( ])([+-]?[\d.]+)\s+to\s+([+-]?[\d.]+)(?=\))", text)
    return {(float(a) < 0 < float(b), frozenset((a.lstrip("+-"), b.lstrip("+-")))) for a, b in bounds}


def test_every_interval_of_a_page_is_in_a_table():
    """A difference may be written the other way round, which turns its signs."""
    stored = [RESEARCH / folder / "table.md" for folder in FOLDERS]
    stored.append(ROOT / "results" / "cpu" / "claims.md")
    of_tables = set().union(*(intervals_in(path.read_text()) for path in stored))
    pages = [RESEARCH / folder / "README.md" for folder in FOLDERS] + [ROOT / "docs" / "results.md"]
    of_pages = {path: intervals_in(path.read_text()) for path in pages}
    assert sum(map(len, of_pages.values())) > 90
    assert {path: found - of_tables for path, found in of_pages.items() if found - of_tables} == {}


def line_of(values, seeds, **more):
    """Return a line with a value for each training seed, in percent of 300 puzzles that all of them solve."""
    shared = {"metric": "exact", "num_samples": 300, "problems_sha256": "a", **more}
    rows = [shared | {"exact": value, "train_seed": seed} for value, seed in zip(values, seeds, strict=True)]
    return tables.Line(tables.Cell("scdm", "top_prob", task="zebra"), tuple(rows))


def test_claim_needs_a_seed_that_both_settings_have():
    cells = [tables.Cell("scdm", "top_prob", n, task="zebra") for n in (0, "all")]
    results = dict(zip(cells, (line_of([50.0], [0]), line_of([40.0], [1])), strict=True))
    found = tables.claims_table(results, [tables.Claim("n=0 > n=all", *cells)])
    assert found.endswith("| n=0 > n=all | 50.0 | 40.0 |  | no claim: no seed in common |\n")


def test_seeds_that_solve_the_same_puzzles_count_each_once():
    """An interval that t would make narrower than the noise of 300 puzzles, which is not symmetric."""
    rows = samplers.read_results(RESEARCH / "samplers" / "rows.jsonl")
    (curve, _) = (curve for curve in samplers.CURVES if curve.task == "puzzles 6x6")
    found = samplers.points(rows, curve, "threshold")[0.99]
    low, high = wilson(found.mean / 100, 300)
    assert found.interval == (100 * low, 100 * high) == pytest.approx((87.7, 94.1), abs=0.05)
    assert found.mean - found.interval[0] > found.interval[1] - found.mean + 1


def test_complete_rows_of_samplers_need_no_model(monkeypatch):
    monkeypatch.setattr(samplers.lt, "load", pytest.fail)
    monkeypatch.setattr(samplers, "models_of", lambda curve, runs: ((seed, runs) for seed in curve.seeds))
    monkeypatch.setattr(samplers, "puzzles", lambda folder: folder)
    samplers.measure_missing(RESEARCH)


def test_verdicts_follow_from_the_interval_and_the_margin():
    assert tables.verdict((1.0, 2.0), 3, False, 0) == tables.verdict((-2.0, -1.0), 3, True, 0) == "yes"
    assert tables.verdict((-2.0, -1.0), 3, False, 0) == "no, the reverse"
    assert tables.verdict((-2.0, 1.0), 3, False, 3) == "yes"
    assert tables.verdict((-5.0, -4.0), 3, False, 3) == "no"
    assert tables.verdict((-5.0, 4.0), 3, False, 3) == "undecided"
    assert tables.verdict((1.0, 2.0), 2, False, 0) == "no claim: 2 seeds"


def test_intercalates_of_known_squares():
    """Cyclic squares have side^2 / 4 if the side is even, else none. Those of xor have the maximum."""
    for side, expected in ((4, 4), (5, 0), (6, 9), (9, 0)):
        index = np.arange(side)
        cyclic = (index[:, None] + index) % side
        assert confidence.num_intercalates(cyclic.reshape(1, -1), side).tolist() == [expected]
    index = np.arange(8)
    klein = index[:, None] ^ index
    assert confidence.num_intercalates(klein.reshape(1, -1), 8).tolist() == [8**2 * 7 // 4]


def test_share_of_boards_that_differ_from_all_others():
    assert confidence.share_of_distinct(np.array([[0, 1], [0, 1], [1, 0], [2, 0]])) == 2 / 4


@pytest.mark.parametrize("k", [1, 4])
def test_schedules_show_as_many_latents_in_all(k):
    def numbers(name):
        latents = timing.scheduled(name, TASKS["sudoku-6"].length, k)
        return [min(latents(n) if callable(latents) else latents, max(0, n - k)) for n in range(1, 37)]

    counts = {name: numbers(name) for name in timing.SCHEDULES}
    total = sum(counts["constant"])
    assert all(abs(sum(count) - total) <= 0.03 * total for count in counts.values())
    assert counts["early"][-1] == 36 - k
    assert counts["early"][0] == counts["late"][-1] == 0
    assert [timing.a_share(36, 9)(left) for left in (4, 16, 36)] == [1, 4, 9]


def shown_by(choice, order, clean, latents):
    """Return the latent tokens of a choice in one row with one candidate, in their order."""
    row = torch.tensor([order])
    numbers = (torch.tensor([number]) for number in (clean, len(order) - clean, 1, latents))
    found = choice(None, TASK)(PolicyInput(row, *numbers, row))
    return found[0, clean + 1 : clean + 1 + latents].tolist()


def test_latents_of_a_unit_and_constrained_ones():
    order = [15, 14, 13, 0, *range(1, 13)]
    assert set(shown_by(latent_choice.of_a_unit, order, 3, 7)) == {1, 2, 3, 4, 5, 8, 12}
    assert shown_by(latent_choice.constrained, order, 3, 1) == [12]  # in a row with all clean cells
    assert shown_by(latent_choice.constrained_of_a_unit, order, 3, 1) == [12]  # units with both sides
    # Clean: 5, 9, 13. Candidate: 10. 2 shares its column, 1 a column with all clean cells, 8 row and box.
    order = [5, 9, 13, 10, 0, 1, 2, 3, 4, 6, 7, 8, 11, 12, 14, 15]
    names = ("of a unit", "constrained", "constrained of a unit")
    assert [shown_by(latent_choice.OF_RULES[name], order, 3, 1) for name in names] == [[2], [1], [8]]


@pytest.mark.slow
def test_models_are_measured_anew(tmp_path, capsys):
    """Each script with decoding code of its own measures a model."""
    run = fit(tiny_run(tmp_path / "run", steps=1))
    timing.measure(run, 2)
    latent_choice.measure(run, 2)
    nats.measure("sudoku-6-scdm", 2)
    assert dead_ends.measure("sudoku-6-mdm", 2, candidates=8)["dead_ends"]
    assert predictions.measure("sudoku-6-mdm", 2)["foresight"]
    printed = capsys.readouterr().out.splitlines()
    assert sum("nats per cell" in line for line in printed) == 2 * len(nats.NUMBERS)
    assert sum("% at " in line for line in printed) == 2 * 4 + 2 * 8 * 2


def test_entropy_of_all_4x4_boards():
    """The solver draws each of the 288 boards, nearly equally often."""
    found = nats.entropy_per_cell(TASK, 20_000, 0)
    assert found == pytest.approx(np.log(288) / 16, abs=0.005)


def test_teacher_forced_order_of_a_sample_is_that_of_its_decoding():
    """With the same seed, the sample is what teacher forcing writes. Known positions and lengths count."""
    oracle, method = Oracle(small_joint(length=5)), METHODS["scdm"]
    known = torch.zeros(64, 5, dtype=torch.bool)
    known[::2, 1] = True
    settings = (known, Decoding(candidates=2, latents=2), 1)
    lengths = torch.tensor([5, 4]).repeat(32)
    made = generate(oracle, method, torch.zeros_like(known).long(), *settings, lengths=lengths)
    for tokens, is_equal in ((made.tokens, True), ((made.tokens + 1) % 3, False)):
        order = nats.teacher_forced_order(oracle, method, tokens, *settings, lengths=lengths)
        assert torch.equal(order, made.order) == is_equal


@pytest.mark.slow
def test_adapted_models_are_measured_once_and_rendered(tmp_path, monkeypatch, capsys):
    """An adapter of a model of transformers: four sequences, or two at a checkpoint."""
    for number in range(120):
        (tmp_path / f"{number}.txt").write_text(f"{number} {('cats', 'dogs', 'birds')[number % 3]} ran.")
    source = {"source": str(tmp_path), "length": 12, "tokenizer": "bytes"}
    data, base = make_data(DataConfig("text", tmp_path / "data", **source)), tmp_path / "base"
    tiny_model("llama", vocab_size=257).save_pretrained(base)
    settings = {"batch_size": 2, "warmup": 1, "lora": 2, "lr": 1e-2, "precision": "fp32"}
    settings |= {"steps": 4, "evaluate_every": 2, "save_every": 2, "start": base, "data": data}
    run = fit("text", "ar-latents", out=tmp_path / "run", **settings)
    for name, value in {"ROWS": tmp_path / "rows.jsonl", "SEQUENCES": 4, "FEW": 2}.items():
        monkeypatch.setattr(adapting, name, value)
    for arguments in ([], [run], [run]):
        adapting.main(base, data, *arguments)
    first, *rows = [json.loads(line) for line in adapting.ROWS.read_text().splitlines()]
    of_run = [(row["step"], row["latents"], len(row["nats"])) for row in rows]
    at_checkpoints = [(2, 0, 2), (2, 8, 2), (4, 0, 2), (4, 8, 2)]
    assert of_run == [*at_checkpoints, (4, 0, 4), (4, 8, 4), (4, 64, 4), (4, "all", 4)]
    assert (first["model"], first["method"]) == ("base", "arm")
    assert rows[0]["weights_sha256"] != rows[2]["weights_sha256"]
    assert rows[3]["nats"] != rows[2]["nats"]
    text = capsys.readouterr().out
    assert text.count("| run | ar-latents | 4 |") == 2 * 4
    assert f"{sum(first['nats']) / sum(first['tokens']):.3f} ± " in text
    without_cache = fit("text", "scdm", out=tmp_path / "scdm", **settings)
    (part,) = adapting.parts_of(base, without_cache)  # at its end
    assert (part.step, part.sequences, part.latents) == (4, 4, (0, 8, "all"))


def test_histories_are_trained_measured_and_tabled(tmp_path, monkeypatch):
    """One run after another method, and two runs: n = 0 and all, with the dial of a single seed."""
    history = script_of("history")
    histories = sys.modules["histories"]
    few = {"size": "pico", "batch_size": 4}
    settings = ("sudoku-4", 8, 100, few, 4, (0, "all"))
    monkeypatch.setattr(histories, "RUNS", tmp_path)
    monkeypatch.setitem(histories.SETTINGS, "boards", histories.Setting(*settings, (), (), ()))
    path = tmp_path / "rows.jsonl"
    for runs, redrawn in ((1, 0), (2, 0), (2, 1)):
        histories.measure_history(histories.History("boards", "scdm", "mdm", 0.5, runs, 0, redrawn), path, 8)
    lines = history.table(history.read_results(path)).splitlines()[2:]
    assert [line.split(" | ")[2:6] for line in lines] == [
        ["mdm", "50%", runs, n] for runs in ("1", "2", "2, redrawn") for n in ("0", "all")
    ]
    trained = [description(path)["training"] for path in tmp_path.glob("boards-scdm*")]
    first = sorted((run["steps"], run.get("first")) for run in trained)
    assert first == [(4, None), (4, None), (8, "mdm:4")]
    monkeypatch.setattr(histories, "SEEDS", range(1))
    monkeypatch.setattr(histories, "FIRST", {"after mdm": "mdm"})
    for _ in range(2):  # the second time nothing is missing
        histories.measure_left_to_right(tmp_path / "left-to-right.jsonl", 8)
    lines = history.lines_in(tmp_path / "left-to-right.jsonl")
    assert [cell.latents for cell in lines] == [*histories.LEFT_TO_RIGHT]
    assert all(row["order"] == "left_to_right" for line in lines.values() for row in line.rows)

    # Differences are by seed, in whatever order they were measured, and no surer than the samples.
    shared = {"metric": "valid", "num_samples": 1_000, "uniform": 0}
    rows = [
        {**shared, "setting": histories.History("boards", *model, seed=seed).label(n), "accuracy": value}
        for model, n, values in ((("scdm", "mdm", 0.5), 0, (1, 3, 2)), (("sidm",), None, (4, 6, 5)))
        for seed, value in enumerate(values)
    ]
    scdm, sidm = history.table([*rows[:3], *reversed(rows[3:])]).splitlines()[2:]
    assert scdm.split(" | ")[6:9] == ["2.0 ± 2.5", "-3.0 ± 0.9", "0.0 ± 0.1"]
    assert sidm.split(" | ")[6:8] == ["5.0 ± 2.5", ""]
    twice = [
        {**row, "setting": {**row["setting"], "runs": 2}, "accuracy": row["accuracy"] + 1} for row in rows
    ]
    (one, two, _) = history.table([*rows, *twice[:3]]).splitlines()[2:]
    assert (one.endswith("|  |"), two.split(" | ")[-1][:5]) == (True, "1.0 ±")
    (scdm, _) = history.table([rows[0], *rows[4:]]).splitlines()[2:]
    assert scdm.split(" | ")[6:8] == ["1.0 (1 seed)", ""]

    # Why: sidm's masked tokens attend to themselves and to clean ones only, so n changes no loss.
    why = importlib.import_module("why")
    sidm = histories.History("boards", "sidm")
    histories.trained(sidm)
    (*_, last) = why.measured(sidm, why.inputs_of("boards"))
    assert last["loss_0"] == pytest.approx(last["loss_all"])
    assert last["step"] == 8
    assert last["attention"] == [0, 0]
