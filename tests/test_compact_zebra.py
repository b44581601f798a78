"""Compact Zebra: the puzzles of Zebra in another encoding, and tokens that are composed of parts."""

import numpy as np
import pytest
import torch

from helpers.refusals import refused
from latent_tokens import METHODS, TASKS, Size, TaskBase, Transformer, fit, from_pretrained, generate
from latent_tokens.tasks import Examples

NAMES = ["zebra-compact-3", "zebra-compact-4"]
CLUES = (
    "left-of LHS c 0 2 RHS c 2 2 CLUE_END = LHS c 0 0 RHS c 2 0 CLUE_END immediate-left LHS c 1 0 "
    "RHS c 0 2 CLUE_END ends LHS c 1 2 RHS CLUE_END"
)
TABLE = [[0, 2, 1], [0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("name", NAMES)
def test_puzzles_keys_and_splits_are_those_of_zebra(name):
    task = TASKS[name]
    compact, puzzles = task.generate(300, seed=4), task.zebra.generate(300, seed=4)
    inside = np.arange(puzzles.tokens.shape[1]) < puzzles.lengths[:, None]
    assert (task.expand(compact.tokens) == np.where(inside, puzzles.tokens, 0)).all()
    assert (task.keys(compact) == task.zebra.keys(puzzles)).all()
    assert (task.splits(compact) == task.zebra.splits(puzzles)).all()
    assert set(task.score(compact.tokens[:20], compact.take(slice(20)))["exact"]) == {1}
    assert task.decode(compact.tokens[0]) == task.zebra.decode(puzzles.tokens[0])


def test_tokens_of_an_example_by_hand():
    # Operands: A1 A2 A3 B1 B2 B3 C1 C2 C3 house1 house2 house3 are 0 to 11. Kinds of two operands have 144
    # tokens each. The first clue is token 5: =, !=, immediate-left, left-of, nbr, ends, inbetween.
    left_of = 5 + 3 * 144 + 12 * 2 + 8
    equal = 5 + 12 * 0 + 6
    immediate_left = 5 + 2 * 144 + 12 * 3 + 2
    ends = 5 + 5 * 144 + 5
    # A: house 1 has A1, house 2 has A3, house 3 has A2. So A1, A2, A3 are in the houses 0, 2, 1.
    wanted = [4] * 5 + [left_of, equal, immediate_left, ends, 3, 0, 2, 1, 0, 1, 2, 0, 1, 2]
    example = TASKS["zebra-compact-3"].example(CLUES.split(), 3, TABLE)
    assert example.tokens[0].tolist() == wanted
    assert example.known[0].tolist() == [True] * 10 + [False] * 9
    assert [TASKS["zebra-compact-3"].symbols[token] for token in wanted[5:10]] == [
        *("left-of(A3,C3)", "=(A1,C1)", "immediate-left(B1,A3)", "ends(B3)", "|")
    ]


def test_parts_of_clues_with_exchangeable_operands_are_equal():
    task = TASKS["zebra-compact-3"]
    tokens = {text: token for token, text in enumerate(task.symbols)}
    for kind, is_symmetric in {"=": True, "!=": True, "nbr": True, "left-of": False}.items():
        one, other = (task.parts[tokens[f"{kind}({names})"]] for names in ("A1,B2", "B2,A1"))
        assert (one == other).all() == is_symmetric
    assert len(np.unique(task.parts[5 + 3 * 144 : 5 + 4 * 144], axis=0)) == 144


@pytest.mark.parametrize("wrong", [[0, 0, 1], [0, 4, 1], [2, 1, 0]])
def test_wrong_answers_are_refused(wrong):
    task = TASKS["zebra-compact-3"]
    tokens = task.example(CLUES.split(), 3, TABLE).tokens
    assert not task.verify(tokens[0])
    tokens[0, 10:13] = wrong
    assert task.verify(tokens[0])
    assert task.score(tokens, task.example(CLUES.split(), 3, TABLE))["exact"].tolist() == [0]


def test_text_of_too_many_clues_is_refused():
    task = TASKS["zebra-compact-3"]
    prompt = task.encode(f"{CLUES} 0 1 2").tokens[0, :10]
    assert (prompt == task.example(CLUES.split(), 3, TABLE).tokens[0, :10]).all()
    with refused("puzzle of 12 clues: zebra-compact-3 has room for 9"):
        task.encode(f"{CLUES} {CLUES} {CLUES} 0 1 2")


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


FEW = {"size": "pico", "steps": 2, "num_train": 8, "num_validation": 2}


def network(**settings):
    torch.manual_seed(0)
    net = Transformer(Size(16, 2, 2), 22, 3, "learned", parts=Pairs.parts, **settings)
    net.method = METHODS["scdm"]
    return net.eval()


def test_embedding_is_the_sum_of_parts_and_mask_has_its_own():
    net = network()
    weight = net.embedding.weight  # row 0 is no part, row 1 + i is part i, the last row is MASK
    assert weight.shape == (1 + 12 + 1, 16)
    assert not weight[0].any()
    assert torch.equal(net.embedding(torch.tensor(2)), weight[1 + 2] + weight[1 + 8])  # the pair 0:1
    assert torch.equal(net.embedding(torch.tensor([0, 22])), weight[torch.tensor([1, 13])])


def test_head_predicts_answers_only():
    net = network(answer_tokens=Pairs.answer_tokens)
    assert net.head.out_features == 2
    positions = torch.arange(3)[None]
    logits = net(torch.tensor([[2, 3, 22]]), positions, torch.ones(1, 3, 3, dtype=torch.bool))
    assert logits.shape == (1, 3, 23)
    assert (logits.double().softmax(-1)[..., 2:] == 0).all()
    tokens = torch.tensor([[2, 3, 0]] * 8)
    known = torch.tensor([[True, True, False]] * 8)
    assert generate(net, net.method, tokens, known).tokens[:, 2].max() <= 1


def test_run_with_parts_trains_and_is_restored(tmp_path):
    fit("pairs", "mdm", out=tmp_path, task=Pairs(), batch_size=4, **FEW)
    net = from_pretrained(tmp_path)
    assert net.parts == [list(row) for row in Pairs.parts]
    assert net.answer_tokens == [0, 1]
    assert not net.embedding.weight[0].any()
    again = from_pretrained(tmp_path)
    ids, positions = torch.tensor([[2, 5, 22]]), torch.arange(3)[None]
    mask = torch.ones(1, 3, 3, dtype=torch.bool)
    assert torch.equal(net(ids, positions, mask), again(ids, positions, mask))


def test_what_parts_and_answers_refuse(tmp_path):
    with refused("noise=all is not supported by Pairs"):
        fit("pairs", "mdm", out=tmp_path / "a", task=Pairs(), noise="all", **FEW)
    task = Pairs()
    task.answer_tokens = (0,)
    with refused("answer_tokens of Pairs lacks token 1"):
        fit("pairs", "mdm", out=tmp_path / "b", task=task, **FEW)
    for parts in (((0, -2), (1, 1)), ((0, 1),)):
        with pytest.raises(ValueError, match="parts"):
            Transformer(Size(16, 2, 2), 2, 3, parts=parts)
    with pytest.raises(ValueError, match="answer_tokens"):
        Transformer(Size(16, 2, 2), 2, 3, answer_tokens=[2])
