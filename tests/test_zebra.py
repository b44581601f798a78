"""Zebra puzzles: their tokens, compact ones too, their only solution by a SAT solver, and the verifier."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from helpers.refusals import refused
from helpers.sat import RELATIONS, zebra_solutions
from latent_tokens import (
    METHODS,
    TASKS,
    Examples,
    Size,
    TaskBase,
    Transformer,
    check_network,
    fit,
    from_pretrained,
    generate,
    log_likelihood,
    loss,
)
from latent_tokens.hf.export import export_model
from latent_tokens.hf.modeling_latent_tokens import LatentTokensForMaskedLM
from latent_tokens.network.transformer import NOT_PREDICTED
from latent_tokens.tasks import configured
from latent_tokens.tasks.readers import read_source
from latent_tokens.tasks.zebra import clues as rules
from latent_tokens.tasks.zebra.puzzles import WORDS, read_prompt

OTHERS = Path(__file__).parents[2] / "shared" / "data" / "zebra" / "reasoning_gym_80.jsonl"
TASK, SMALL, COMPACT = TASKS["zebra"], TASKS["zebra-3"], TASKS["zebra-compact-3"]

KINDS = ("=", "!=", "immediate-left", "left-of", "nbr", "ends", "inbetween")
A = (
    "= LHS c 1 1 RHS c 0 2 CLUE_END = LHS c 2 0 RHS c 1 1 CLUE_END immediate-left LHS c 0 0 "
    "RHS c 2 0 CLUE_END "
    "= LHS c 2 2 RHS n 0 1 CLUE_END nbr LHS c 1 0 RHS c 0 0 CLUE_END"
)
A_TABLE = [[1, 0, 2], [0, 2, 1], [1, 2, 0]]
A_IDS = (
    "1 11 14 16 5 5 15 16 4 6 13 11 14 16 6 4 15 16 5 5 13 18 14 16 4 4 15 16 6 4 13 11 14 16 6 6 15 21 4 "
    "5 13 22 14 16 5 4 15 16 4 4 13 "
    "4 5 6 3 5 4 6 4 6 5 5 6 4 2"
)
B = (
    "left-of LHS c 0 2 RHS c 2 2 CLUE_END = LHS c 0 0 RHS c 2 0 CLUE_END immediate-left LHS c 1 0 "
    "RHS c 0 2 CLUE_END ends LHS c 1 2 RHS CLUE_END"
)
B_TABLE = [[0, 2, 1], [0, 1, 2], [0, 1, 2]]
B_IDS = (
    "1 20 14 16 4 6 15 16 6 6 13 11 14 16 4 4 15 16 6 4 13 18 14 16 5 4 15 16 4 6 13 17 14 16 5 6 15 "
    "13 4 5 6 3 4 6 5 4 5 6 4 5 6 2"
)


def answer_start(row):
    return row.tolist().index(3) + 1


@pytest.mark.parametrize(("clues", "table", "ids"), [(A, A_TABLE, A_IDS), (B, B_TABLE, B_IDS)])
def test_ids_are_the_papers(clues, table, ids):
    wanted = [int(number) for number in ids.split()]
    paper = configured("zebra", {"padding": "paper"}).example(clues.split(), 3, table)
    assert paper.tokens[0].tolist() == wanted + [0] * (384 - len(wanted))
    assert paper.lengths.tolist() == [384]
    none = TASK.example(clues.split(), 3, table)
    assert none.tokens[0, : int(none.lengths[0])].tolist() == wanted[:-1]
    assert none.known[0].sum() == paper.known[0].sum() == wanted.index(3) + 1
    assert (TASK.encode(f"{clues} 0 1 2").known == none.known).all()


def test_a_sat_solver_proves_every_puzzle_unique():
    examples = TASK.generate(80, seed=3)
    sizes, kinds = set(), set()
    for number, row in enumerate(examples.tokens):
        puzzle, houses, attributes = read_prompt(row)
        start = answer_start(row)
        table = (row[start : start + houses * attributes].reshape(attributes, houses) - 4).tolist()
        words = [WORDS[token] for token in row[1 : start - 1 - houses]]
        assert zebra_solutions(words, houses, attributes) == [table]
        sizes.add((houses, attributes))
        kinds |= {WORDS[clue[0]] for clue in puzzle}
        if number < 30:  # every clue is needed by propagation
            assert rules.solves(puzzle, houses, attributes)
            for i in range(len(puzzle)):
                assert not rules.solves(np.delete(puzzle, i, axis=0), houses, attributes)
    assert len(sizes) == 16
    assert kinds == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("houses", [3, 4])
def test_clue_propagation_equals_enumeration(kind, houses):
    """Three references keep more than the houses of true placements, unless each has one house."""
    relation = RELATIONS.get(kind, lambda x: x in (0, houses - 1))
    arity = {"ends": 1, "inbetween": 3}.get(kind, 2)
    full = (1 << houses) - 1
    for masks in product(range(1, full + 1), repeat=arity):
        left = [*rules.narrowed(WORDS.index(kind), *masks, *[full] * (3 - arity), full)][:arity]
        domains = [[house for house in range(houses) if mask >> house & 1] for mask in masks]
        possible = [where for where in product(*domains) if relation(*where)]
        exact = [sum(1 << house for house in {where[at] for where in possible}) for at in range(arity)]
        if kind != "inbetween":
            assert left == exact
        assert all(kept & needed == needed for kept, needed in zip(left, exact, strict=True))
        if all(len(domain) == 1 for domain in domains):
            assert bool(possible) == all(left)


@pytest.mark.parametrize("padding", ["none", "paper"])
@given(seed=st.integers(0, 999), cell=st.integers(0, 8), step=st.integers(1, 2))
@settings(max_examples=20)
def test_one_changed_cell_is_always_caught(padding, seed, cell, step):
    task = replace(SMALL, padding=padding)
    examples = task.generate(1, seed)
    tokens = examples.tokens.copy()
    at = answer_start(tokens[0]) + cell
    tokens[0, at] = (tokens[0, at] - 4 + step) % 3 + 4
    assert task.verify(tokens[0])[0] == f"attribute {'ABC'[cell // 3]} lacks a value"
    scores = task.score(tokens, examples)
    assert scores["exact"] == scores["valid"] == 0
    assert scores["cells"] == pytest.approx(8 / 9)
    assert scores["rows"] == pytest.approx(2 / 3)


@given(seed=st.integers(0, 999), row=st.integers(0, 2), swap=st.sampled_from([(0, 1), (0, 2), (1, 2)]))
@settings(max_examples=20)
def test_two_changed_cells_break_clues_that_are_named(seed, row, swap):
    """Swap two values of an attribute. The table stays a permutation, so only the clue is violated."""
    examples = SMALL.generate(1, seed)
    tokens = examples.tokens.copy()
    cells = answer_start(tokens[0]) + 3 * row + np.array(swap)
    tokens[0, cells] = tokens[0, cells[::-1]]
    wrong = SMALL.verify(tokens[0])
    assert wrong
    assert all(fault.startswith("not true: ") for fault in wrong)
    count = len(read_prompt(tokens[0])[0])
    assert SMALL.score(tokens)["clues"] == pytest.approx(1 - len(wrong) / count)


def test_a_search_that_runs_long_gives_up():
    """Seven values that all differ in six houses have no table, which only an exhaustive search shows."""
    values = [(row, value) for row in (3, 4, 5) for value in range(3)][:7]
    pairs = [(a, b) for i, a in enumerate(values) for b in values[:i] if a[0] != b[0]]
    free = " ".join(f"!= LHS c {row} 0 RHS n 0 0 CLUE_END" for row in range(3))
    text = " ".join(f"!= LHS c {a[0]} {a[1]} RHS c {b[0]} {b[1]} CLUE_END" for a, b in pairs)
    assert TASK.count_solutions(TASK.encode(f"{text} {free} 0 1 2 3 4 5")) is None


def test_drawn_as_a_person_would():
    drawn = TASK.decode(TASK.example(A.split(), 3, A_TABLE).tokens[0])
    assert drawn.splitlines() == [
        "3 houses; of each attribute, A to C, every house has another value, 1 to 3",
        "  1. B2 is in the same house as A3", "  2. C1 is in the same house as B2",
        "  3. A1 is immediately left of C1", "  4. C3 is in house 2", "  5. B1 is next to A1", "",
        "house  1   2   3", "       A2  A1  A3", "       B1  B3  B2", "       C2  C3  C1",
    ]  # fmt: skip


TEXTS = [
    ("", "no row of houses"),
    (f"{A} 0 2 1", "no row of houses: after the last CLUE_END must be the houses, like 0 1 2"),
    (f"{A} 0 1", "values and houses below 2"),
    ("= LHS c 0 1 RHS c 1 CLUE_END 0 1 2", "clue '= LHS c 0 1 RHS c 1': must be like"),
    ("0 LHS c 0 1 RHS c 1 1 CLUE_END 0 1 2", "clue '0 LHS c 0 1 RHS c 1 1'"),
    ("= LHS n 1 1 RHS c 1 1 CLUE_END 0 1 2", "clue '= LHS n 1 1 RHS c 1 1'"),
    ("= LHS c 0 1 RHS c 2 1 CLUE_END 0 1 2", "no clue names attribute 1"),
    ("= LHS c 0 1 RHS c 1 1 CLUE_END 0 1 2", "puzzle of 2 attributes: zebra has 3 or 4 or 5 or 6"),
    ("<SEP> 0 1 2", "'<SEP>' is not a word of a puzzle"),
]
RECORDS = [
    (A, [[1, 0, 2]] * 3, "the answer is wrong: not true: "),
    (A, A_TABLE[:2], "answer of 2 rows: must have 3 of 3 values"),
    (A.replace("= LHS c 2 2 RHS n 0 1 CLUE_END ", ""), A_TABLE, "the clues have several solutions"),
]


def test_wrong_puzzles_and_records_are_refused():
    for text, message in TEXTS:
        with refused(message):
            TASK.encode(text)
    for clues, table, message in RECORDS:
        with refused(message):
            TASK.example(clues.split(), 3, table)


def test_the_order_of_clues_does_not_matter_to_the_key():
    first, *rest = A.split(" CLUE_END ")
    rest[-1] = rest[-1].removesuffix(" CLUE_END")
    turned = " CLUE_END ".join([*rest, first]) + " CLUE_END"
    keys = [TASK.keys(TASK.encode(f"{clues} 0 1 2")) for clues in (A, turned)]
    assert keys[0] == keys[1]
    assert keys[0] != TASK.keys(TASK.encode(A.replace("c 1 1", "c 1 2") + " 0 1 2"))


def test_records_of_others_verify_and_are_proven_unique():
    if not OTHERS.is_file():
        pytest.skip("the puzzles that others made are not at hand")
    examples, _ = read_source(TASK, OTHERS, skip_bad=False)
    assert len(examples.tokens) == 80
    for i, line in enumerate(OTHERS.read_text().splitlines()):
        record = json.loads(line)
        assert TASK.count_solutions(examples.take(slice(i, i + 1))) == 1
        solutions = zebra_solutions(record["clues"], record["n_houses"], record["n_attrs"])
        assert solutions == [record["solution"][1:]]
        assert TASK.verify(examples.tokens[i]) == []


# Compact Zebra: the same puzzles in another encoding, whose tokens are composed of parts.


@pytest.mark.parametrize("name", ["zebra-compact-3", "zebra-compact-4"])
def test_compact_puzzles_keys_and_splits_are_those_of_zebra(name):
    task = TASKS[name]
    compact, puzzles = task.generate(100, seed=4), task.zebra.generate(100, seed=4)
    inside = np.arange(puzzles.tokens.shape[1]) < puzzles.lengths[:, None]
    assert (task.expand(compact.tokens) == np.where(inside, puzzles.tokens, 0)).all()
    assert (task.keys(compact) == task.zebra.keys(puzzles)).all()
    assert (task.splits(compact) == task.zebra.splits(puzzles)).all()
    assert task.decode(compact.tokens[0]) == task.zebra.decode(puzzles.tokens[0])


def test_compact_tokens_by_hand():
    # Operands: A1 A2 A3 B1 B2 B3 C1 C2 C3 house1 house2 house3 are 0 to 11. Kinds of two operands have 144
    # tokens each. The first clue is token 5: =, !=, immediate-left, left-of, nbr, ends, inbetween.
    left_of = 5 + 3 * 144 + 12 * 2 + 8
    equal = 5 + 12 * 0 + 6
    immediate_left = 5 + 2 * 144 + 12 * 3 + 2
    ends = 5 + 5 * 144 + 5
    # A: house 1 has A1, house 2 has A3, house 3 has A2. So A1, A2, A3 are in the houses 0, 2, 1.
    wanted = [4] * 5 + [left_of, equal, immediate_left, ends, 3, 0, 2, 1, 0, 1, 2, 0, 1, 2]
    example = COMPACT.example(B.split(), 3, B_TABLE)
    assert example.tokens[0].tolist() == wanted
    assert example.known[0].tolist() == [True] * 10 + [False] * 9
    assert [COMPACT.symbols[token] for token in wanted[5:10]] == [
        *("left-of(A3,C3)", "=(A1,C1)", "immediate-left(B1,A3)", "ends(B3)", "|")
    ]
    assert (COMPACT.encode(f"{B} 0 1 2").tokens[0, :10] == wanted[:10]).all()
    with refused("puzzle of 12 clues: zebra-compact-3 has room for 9"):
        COMPACT.encode(f"{B} {B} {B} 0 1 2")


def test_parts_of_clues_with_exchangeable_operands_are_equal():
    tokens = {text: token for token, text in enumerate(COMPACT.symbols)}
    for kind, is_symmetric in {"=": True, "!=": True, "nbr": True, "left-of": False}.items():
        one, other = (COMPACT.parts[tokens[f"{kind}({names})"]] for names in ("A1,B2", "B2,A1"))
        assert (one == other).all() == is_symmetric
    assert len(np.unique(COMPACT.parts[5 + 3 * 144 : 5 + 4 * 144], axis=0)) == 144


def test_wrong_compact_answer_is_neither_valid_nor_exact():
    example = COMPACT.example(B.split(), 3, B_TABLE)
    for wrong in ([0, 0, 1], [0, 4, 1], [2, 1, 0]):
        tokens = example.tokens.copy()
        tokens[0, 10:13] = wrong
        assert COMPACT.verify(tokens[0])
        assert COMPACT.score(tokens, example)["exact"] == COMPACT.score(tokens)["valid"] == 0


class Pairs(TaskBase):
    """Which digit of a pair is larger: 0 the first, 1 the second."""

    pairs = tuple((a, b) for a in range(5) for b in range(5) if a != b)
    vocab = ("first", "second", *(f"{a}:{b}" for a, b in pairs))
    parts = ((0, -1), (1, -1), *((2 + a, 7 + b) for a, b in pairs))
    answer_tokens = (0, 1)
    length = 3

    def generate(self, count, seed, first=0):
        drawn = [np.random.default_rng((seed, i)).integers(20, size=2) for i in range(first, first + count)]
        rows = [[2 + i, 2 + j, int(self.pairs[i][0] < self.pairs[i][1])] for i, j in drawn]
        return Examples.padded(rows, 2, 3)

    def verify(self, tokens):
        a, b = self.pairs[tokens[0] - 2]
        return [] if tokens[2] == (a < b) else ["wrong"]


FEW = {"size": "pico", "steps": 1, "num_train": 8, "num_validation": 2}


def test_embedding_is_the_sum_of_parts_and_mask_has_its_own():
    net = Transformer(Size(16, 2, 2), 22, 3, parts=Pairs.parts)
    weight = net.embedding.weight  # row 0 is no part, row 1 + i is part i, the last row is MASK
    assert weight.shape == (1 + 12 + 1, 16)
    assert not weight[0].any()
    assert torch.equal(net.embedding(torch.tensor(2)), weight[1 + 2] + weight[1 + 8])  # the pair 0:1
    assert torch.equal(net.embedding(torch.tensor([0, 22])), weight[torch.tensor([1, 13])])


def test_head_predicts_answers_only(tmp_path):
    net = Transformer(Size(16, 2, 2), 22, 3, parts=Pairs.parts, answer_tokens=Pairs.answer_tokens).eval()
    assert net.head.out_features == 2
    positions = torch.arange(3)[None]
    mask = torch.tensor([[True, True, False], [True, True, False], [True, True, True]])[None]
    inputs = (torch.tensor([[2, 3, 22]]), positions, mask)
    assert net(*inputs).shape == (1, 3, 2)
    check_network(net, METHODS["scdm"], 3, 22)
    later = Transformer(Size(16, 2, 2), 22, 3, answer_tokens=[3, 1]).eval()
    assert later(*inputs)[0, 0].gt(NOT_PREDICTED).tolist() == [False, True, False, True]
    check_network(torch.compile(net, backend="eager"), METHODS["scdm"], 3, 22)

    # The columns of the head are in the order of answer_tokens, those of the logits in the order of tokens.
    reverse = Transformer(Size(16, 2, 2), 22, 3, parts=Pairs.parts, answer_tokens=[1, 0]).eval()
    reverse.load_state_dict(net.state_dict())
    assert torch.equal(reverse(*inputs), net(*inputs).flip(-1))
    tokens = torch.tensor([[2, 3, 0]] * 8)
    known = torch.tensor([[True, True, False]] * 8)
    assert generate(net, METHODS["scdm"], tokens, known).tokens[:, 2].max() <= 1

    # Another token has no probability, and in Hugging Face all tokens have a logit.
    for answer, is_possible in ((1, True), (7, False)):
        tokens = torch.tensor([[2, 3, answer]])
        nats = loss(net, METHODS["scdm"], tokens, known[:1])
        sizes = (torch.tensor([2]), torch.tensor([3]))
        likelihood = log_likelihood(net, METHODS["scdm"], tokens, positions, *sizes).sum()
        assert bool(nats.isfinite()) == bool(likelihood.isfinite()) == is_possible
    net.method = METHODS["scdm"]
    export_model(net, tmp_path)
    logits = LatentTokensForMaskedLM.from_pretrained(tmp_path)(inputs[0]).logits
    assert logits.shape == (1, 3, 23)
    torch.testing.assert_close(logits[0, 2, :2], net(*inputs)[0, 2])
    assert (logits[0, 2, 2:] <= NOT_PREDICTED).all()


def test_run_with_parts_trains_and_is_restored(tmp_path):
    fit("pairs", "mdm", out=tmp_path, task=Pairs(), batch_size=4, **FEW)
    net = from_pretrained(tmp_path)
    assert net.parts == [list(row) for row in Pairs.parts]
    assert net.answer_tokens == [0, 1]
    assert not net.embedding.weight[0].any()


def test_what_parts_and_answers_refuse(tmp_path):
    with refused("noise=all is not supported by Pairs"):
        fit("pairs", "mdm", out=tmp_path / "a", task=Pairs(), noise="all", **FEW)
    task = Pairs()
    task.answer_tokens = (0,)
    with refused("answer_tokens of Pairs lacks token 1"):
        fit("pairs", "mdm", out=tmp_path / "b", task=task, **FEW)
    for wrong in ({"parts": ((0, -2), (1, 1))}, {"parts": ((0, 1),)}, {"answer_tokens": [2]}):
        with refused(next(iter(wrong))):
            Transformer(Size(16, 2, 2), 2, 3, **wrong)
