"""AutoTokenizer reads the tokenizer of a saved model, and its text is that of the task."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("transformers")

from transformers import AutoTokenizer, pipeline

import latent_tokens as lt
from latent_tokens import TASKS, Text, from_pretrained
from latent_tokens.hf.export import export_model
from latent_tokens.hf.modeling_latent_tokens import LatentTokensForMaskedLM
from latent_tokens.hf.tokenizer_files import tokenizer_files
from latent_tokens.tasks.text.tokenizer import learn_bpe

PUZZLES = {
    "sudoku-4": (TASKS["sudoku-4"], "."),
    "sudoku-16": (TASKS["sudoku-16"], "."),
    "sudoku-6, paper": (replace(TASKS["sudoku-6"], padding="paper"), "."),
    "sudoku-6-puzzle": (TASKS["sudoku-6-puzzle"], "[MASK]"),
    "countdown-3": (TASKS["countdown-3"], "."),
    "zebra-3": (TASKS["zebra-3"], "[MASK]"),
}


def tokenizer_of(task, vocab_size, length, folder, mask_id=None):
    """Return the tokenizer that transformers reads from a directory with these files only."""
    folder.mkdir(exist_ok=True)
    for name, content in tokenizer_files(task, vocab_size, length, mask_id).items():
        (folder / name).write_bytes(content)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", PUZZLES)
def test_puzzle_tokens_read_back_as_themselves(name, tmp_path):
    task, mask = PUZZLES[name]
    tokenizer = tokenizer_of(task, task.vocab_size, task.length, tmp_path)
    every = list(range(task.vocab_size + 1))
    tokens = [every, every[::-1]]
    assert tokenizer(tokenizer.batch_decode(tokens)).input_ids == tokens
    assert (tokenizer.mask_token, tokenizer.mask_token_id) == (mask, task.vocab_size)
    # A model of transformers has more tokens than the puzzle that it learned.
    larger = tokenizer_of(task, task.vocab_size, task.length, tmp_path / "larger", mask_id=99)
    tokens = [0, 99, task.vocab_size - 1]
    assert larger(larger.decode(tokens)).input_ids == tokens
    assert len(tokenizer) == task.vocab_size + 1
    assert tokenizer.model_max_length == task.length
    for role in ("pad", "bos", "eos"):
        token = getattr(tokenizer, f"{role}_token")
        assert token in (None, f"[{role.upper()}]", f"<{role.upper()}>")
        assert (token is None) == (f"[{role.upper()}]" not in task.symbols and name != "zebra-3")


def test_space_and_end_of_line_may_be_tokens(tmp_path):
    maze = type("Maze", (lt.TaskBase,), {"length": 9, "vocab": "#S \n", "generate": None, "verify": None})()
    tokenizer = tokenizer_of(maze, maze.vocab_size, maze.length, tmp_path)
    tokens = [0, 2, 2, 1, 3, 3, 0, 4, 2]
    text = tokenizer.decode(tokens)
    assert text == "#  S\n\n#. "
    assert tokenizer(text).input_ids == tokens
    assert maze.encode(text).tokens[0, :7].tolist() == tokens[:7]
    assert tokenizer("#\tS").input_ids == [0, 1]


def test_board_may_be_drawn_in_a_frame(tmp_path):
    task = TASKS["sudoku-4"]
    tokenizer = tokenizer_of(task, task.vocab_size, task.length, tmp_path)
    board = np.array([0, 1, 2, 3, 2, 3, 0, 1, 1, 0, 3, 2, 3, 2, 1, 0], np.uint8)
    assert tokenizer(task.decode(board)).input_ids == board.tolist()
    assert tokenizer("1.3 4").input_ids == [0, 4, 2, 3]


def test_task_without_symbols_has_numbers_as_words(tmp_path):
    tokenizer = tokenizer_of(None, 12, 5, tmp_path)
    assert tokenizer("11 0 [MASK] 7").input_ids == [11, 0, 12, 7]
    assert tokenizer.batch_decode([[11, 0, 12, 7]]) == ["11 0 [MASK] 7"]


def test_bytes_of_text_are_its_tokens(tmp_path):
    text = Text(length=64)
    tokenizer = tokenizer_of(text, text.vocab_size, text.length, tmp_path)
    sentence = "naïve ☃\n\t and <|endoftext|>[MASK]"
    ids = tokenizer(sentence).input_ids
    assert ids == [*text.coder.encode(["naïve ☃\n\t and "])[0].tolist(), 256, 257]
    assert tokenizer.decode(ids) == sentence
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (256, 256, 256)


def test_learned_tokenizer_stays_and_has_a_mask(tmp_path):
    learned = learn_bpe(iter(["the quick brown fox"] * 9), 280)
    (tmp_path / "tokenizer.json").write_bytes(learned.to_json())
    text = Text(64, "tokenizer.json", tmp_path)
    tokenizer = tokenizer_of(text, text.vocab_size, text.length, tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == learned.to_json()
    ids = tokenizer("the quick[MASK]").input_ids
    assert ids == [*learned.encode(["the quick"])[0].tolist(), text.vocab_size]
    assert tokenizer.eos_token_id == text.coder.end


def test_tokenizer_of_a_saved_model_reads_and_writes_for_it(tmp_path):
    export_model(from_pretrained("sudoku-6-scdm"), tmp_path)
    model = LatentTokensForMaskedLM.from_pretrained(tmp_path)
    fill = pipeline("fill-mask", model=model, tokenizer=str(tmp_path))
    board = "123456456123231564564231312645" + "64531."
    predicted = fill(board, top_k=6)
    logits = model(fill.tokenizer(board, return_tensors="pt").input_ids).logits[0, -1]
    assert [row["token"] for row in predicted] == logits.argsort(descending=True)[:6].tolist()
    assert {row["token_str"] for row in predicted} == set("123456")
    assert predicted[0]["token_str"] == "2"
    assert len(fill("." * 36)) == 36

    # The output of generate has the tokens with their record.
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    output = model.generate(tokenizer(["1" + "." * 34 + "2"] * 2, return_tensors="pt").input_ids, seed=3)
    boards = tokenizer.batch_decode(output.sequences)
    assert all(len(board) == 36 and board[0] == "1" and board[-1] == "2" for board in boards)
    assert output["sequences"] is output[0] is output.sequences
    assert output.forward_passes == 34
