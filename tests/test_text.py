"""Text: packed sequences equal the documents, prompts have gaps, and the command line trains a model."""

import hashlib
import json
import re
import shutil
from dataclasses import replace

import datasets
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, processors

from latent_tokens import DataConfig, TrainConfig, fit, from_pretrained, load_data, make_data
from latent_tokens.cli import main
from latent_tokens.data.corpus import (
    SHORTEST,
    blocks_of,
    documents,
    files_of,
    key_of,
    length_of,
    pieces,
    split_of,
)
from latent_tokens.evaluation.text import LanguageModel
from latent_tokens.tasks import Text
from latent_tokens.tasks.base import evenly
from latent_tokens.tasks.text.task import text_described
from latent_tokens.tasks.text.tokenizer import END, Bytes, Learned, learn_bpe, read_tokenizer

WORDS = [
    "the",
    "cell",
    "row",
    "box",
    "unit",
    "candidate",
    "is",
    "open",
    "known",
    "masked",
    "latent",
    "and",
    "shown",
    "decoded",
    "next",
    "first",
]


def article(number):
    rng = np.random.default_rng(number)
    return " ".join(rng.choice(WORDS, size=80)) + f" {number}."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return sixty documents, one per file. One of them is repeated and one is empty."""
    place = tmp_path_factory.mktemp("articles")
    for number in range(60):
        (place / f"{number:02}.txt").write_text(article(number))
    (place / "again.txt").write_text(article(7))
    (place / "empty.txt").write_text(" \n")
    return place


@pytest.fixture(scope="module")
def data(folder, tmp_path_factory):
    return make_data(
        DataConfig(
            "text",
            tmp_path_factory.mktemp("data") / "text",
            source=str(folder),
            length=32,
            tokenizer="bpe:300",
        )
    )


def test_documents_stand_whole_in_one_split_each_once(folder, data):
    task, splits = load_data(data)
    texts = {
        split: "".join(task.decode(row[1:-1]) for row in examples.tokens)
        for split, examples in splits.items()
    }
    for number in range(60):
        own = article(number)
        homes = [split for split, text in texts.items() if own + END in text]
        cut = [
            own.startswith(text[text.rfind(END) + len(END) :]) for text in texts.values()
        ]  # the last one of a split may be
        assert homes == [split_of(own)] or any(cut)
        assert sum(text.count(own + END) for text in texts.values()) <= 1
    manifest = json.loads((data / "manifest.json").read_text())
    assert (manifest["empty"], manifest["repeated"]) == (1, 1)
    assert sum(about["documents"] for about in manifest["splits"].values()) == 60
    for split, examples in splits.items():
        assert (examples.tokens[:, [0, -1]] == task.coder.end).all()
        assert examples.tokens.dtype == np.uint16
        assert not examples.known.any()
        about = manifest["splits"][split]
        assert about["examples"] == len(examples.tokens) == about["tokens"] // 30


def test_same_text_gives_equal_bytes_and_changes_are_noticed(folder, data, tmp_path):
    again = make_data(
        DataConfig("text", tmp_path / "again", source=str(folder), length=32, tokenizer="bpe:300")
    )
    for name in ("train.tokens.npy", "validation.tokens.npy", "tokenizer.json"):
        assert (again / name).read_bytes() == (data / name).read_bytes()
    content = bytearray((again / "train.tokens.npy").read_bytes())
    content[-5] ^= 1
    (again / "train.tokens.npy").write_bytes(content)
    with pytest.raises(ValueError, match="train does not match the checksum in its manifest"):
        load_data(again)


def test_lines_of_json_and_one_long_text(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"body": article(i), "n": i}) + "\n" for i in range(3))
    )
    assert list(documents(tmp_path / "a.jsonl", "body")) == [article(i) for i in range(3)]
    with pytest.raises(
        ValueError, match=r"a.jsonl: record 1 has no text in the field text\. Name one of body, n with"
    ):
        list(documents(tmp_path / "a.jsonl", "text"))
    long = "\n\n".join(article(i) for i in range(200))
    parts = list(pieces([long], len(long)))
    assert "".join(parts) == long
    assert len(parts) > 3
    size = max(SHORTEST, len(long) // 256)
    assert all(size <= len(part) < size + 1_000 for part in parts[:-1])
    assert {split_of(part) for part in parts} == {"train", "validation", "test"}


BAD = {
    "no utf-8": ("a.txt", b"fine\nnot \xff fine", [], r"a.txt: not UTF-8 \(invalid start byte\). Convert it"),
    "no json": ("a.jsonl", b'{"text": "a"}\nnope\n', [], "line 2: not JSON"),
    "columns": ("a.CSV", b"text,label\nhello,1\n", [], "a.CSV: text is read from a file without columns"),
    "tabs": ("a.tsv", b"text\tlabel\nhello\t1\n", [], "a.tsv: text is read from a file without columns"),
    "empty": ("a.txt", b"  \n", [], "no text: the source has no document"),
    "too short": ("a.txt", b"short", [], "not enough text for one sequence of 256 tokens"),
    "of puzzles": ("a.txt", b"text", ["--clues", "30"], "--clues 30: text has no such setting"),
    "length": ("a.txt", b"text", ["--length", "2"], "--length 2: must be a whole number from 3"),
    "bpe": ("a.txt", b"text", ["--tokenizer", "bpe:many"], "must be bpe:SIZE with a whole number"),
    "small bpe": ("a.txt", b"text", ["--tokenizer", "bpe:9"], "must have at least 257 tokens"),
    "folder": ("a.txt", b"text", ["--tokenizer", "{here}"], "a directory without tokenizer.json"),
    "damaged tokenizer": ("a.txt", b"text", ["--tokenizer", "{here}/a.txt"], "not a tokenizer"),
}


@pytest.mark.parametrize("name", BAD)
def test_unreadable_source_gets_one_line_and_leaves_nothing(tmp_path, capsys, name):
    file, content, options, message = BAD[name]
    (tmp_path / file).write_bytes(content)
    options = [option.format(here=tmp_path) for option in options]
    assert (
        main(["data", "text", "--source", str(tmp_path / file), "--out", str(tmp_path / "out"), *options])
        == 2
    )
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@given(st.text())
def test_bytes_give_back_every_text(text):
    coder = Bytes()
    (ids,) = coder.encode([text])
    assert coder.decode(ids.tolist()) == text


@given(st.text())
def test_a_learned_tokenizer_gives_back_every_text(text):
    if END not in text:
        (ids,) = BPE.encode([text])
        assert BPE.decode(ids.tolist()) == text


BPE = learn_bpe(iter([article(i) for i in range(9)]), 300)


def test_unknown_token_is_shown_without_failing():
    assert (
        Bytes().decode([104, 105, 256, 999, 0xE2])
        == f"hi{END}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    )
    assert BPE.decode([BPE.vocab_size]) == "\N{REPLACEMENT CHARACTER}"
    (ids,) = BPE.encode(["été"])
    assert BPE.decode([*ids, BPE.vocab_size, *ids]) == "été\N{REPLACEMENT CHARACTER}été"
    assert BPE.decode([BPE.end]) == END
    with_gap = Learned(Tokenizer(models.WordLevel({"a": 0, "</s>": 2}, unk_token="a")), "with a gap")
    assert with_gap.decode([0, 1, 2]) == "a\N{REPLACEMENT CHARACTER}</s>"


def test_a_prompt_is_known_its_gaps_are_open():
    task = Text(12)
    problem = task.encode("ab___c")
    assert problem.tokens[0, :7].tolist() == [256, 97, 98, 256, 256, 256, 99]
    assert problem.known[0, :7].tolist() == [True, True, True, False, False, False, True]
    assert problem.lengths.tolist() == [7]
    free = task.encode("ab")
    assert (free.lengths.tolist(), free.known[0].sum()) == ([12], 3)
    with pytest.raises(ValueError, match="prompt of 20 tokens: the limit is 11"):
        task.encode("x" * 20)


def test_the_bounds_of_a_text():
    assert Text(12).encode("x" * 11).lengths.tolist() == [12]
    assert Text(12).encode("a__b").known[0, :5].all()  # no gap
    assert (Text(3).length, Text(65_535).length, Text.top_p) == (3, 65_535, 0.9)
    with pytest.raises(ValueError, match="length=2: must be a whole number from 3"):
        Text(2)
    for about in ({"length": "9", "tokenizer": "bytes"}, {"length": 9}, {"length": 9, "tokenizer": 1}):
        with pytest.raises(ValueError, match="no task of this version"):
            text_described(about, None)
    assert Text(9).fingerprint == Text(12).fingerprint == hashlib.sha256(b"bytes").hexdigest()[:8]


def test_a_whole_text_in_sequences_as_it_is_learned():
    task = Text(10)
    made = task.sequences("abcdefghijk")
    assert made.lengths.tolist() == [10, 5]
    assert made.tokens[0].tolist() == [256, *b"abcdefgh", 256]
    assert made.tokens[1, :5].tolist() == [256, *b"ijk", 256]


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return fit(
        TrainConfig(
            "text",
            "scdm",
            tmp_path_factory.mktemp("run") / "text",
            steps=4,
            batch_size=4,
            data=data,
            evaluate_every=4,
            precision="fp32",
        )
    )


def test_text_model_trains_samples_and_is_evaluated(run, data, tmp_path, capsys):
    task = Text(32, "tokenizer.json", run)
    assert task.vocab_size == from_pretrained(run).vocab_size == 300
    assert main(["sample", str(run), "--num-samples", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["tokens"]) for line in lines] == [32, 32]
    assert (
        main(
            ["sample", str(run), "--num-samples", "1", "--prompt", "the ____ box", "--show", "--latents", "2"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith(f"{END}the")
    assert "4 tokens in" in out
    assert (
        main(
            [
                "evaluate",
                str(run),
                "--data",
                str(data),
                "--num-samples",
                "3",
                "--latents",
                "0",
                "all",
                "--json",
            ]
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["latents"] for row in rows] == [0, "all"]
    for row in rows:
        assert (row["metric"], row["order"], row["top_p"], row["temperature"]) == (
            "perplexity",
            "uniform",
            0.9,
            1.0,
        )
        assert row["ci95"][0] < row["perplexity"] < row["ci95"][1]
        assert 0 < row["entropy"] < np.log(32)
        assert row["judge"].startswith("trigrams of ")
        assert row["judged_tokens"] == 3 * 31
    (tmp_path / "a.txt").write_text(article(99))
    assert main(["likelihood", str(run), "--text", str(tmp_path / "a.txt"), "--orders", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["nats"]) == 3
    assert found["perplexity"] == pytest.approx(np.exp(np.mean(found["nats"])))
    assert found["bytes"] == len(article(99).encode())
    bits = found["nats_per_token"] * found["tokens"] / np.log(2)
    assert found["bits_per_byte"] == pytest.approx(bits / found["bytes"])
    assert main(["likelihood", str(run), "--text", str(tmp_path / "a.txt"), "--order", "left_to_right"]) == 0
    line = capsys.readouterr().out
    assert "standard error" not in line
    assert "bits per byte" in line
    in_order = ["likelihood", str(run), "--text", str(tmp_path / "a.txt"), "--order", "left_to_right"]
    nats = []
    for policy in ("nearest", "random"):
        assert main([*in_order, "--latents", "2", "--latent-policy", policy, "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert row["latent_policy"] == policy
        nats.append(row["nats_per_token"])
    assert nats[0] != nats[1]


MISTAKES = {
    "data text --source {run}/metrics.jsonl --field loss": (
        "metrics.jsonl: record 1 has no text in the field loss"
    ),
    "data text --source README.md --field text": "--field text: README.md has no fields. Leave it out",
    "data text --source {run}/tokenizer.json --field text": (
        "tokenizer.json: text is read from a file without columns"
    ),
    "data text --source {run} --skip-bad": "--skip-bad: text has no such setting",
    "data text --source {run}/none": (
        "not found. Name a text file, a directory of them, a .jsonl, or hub:OWNER/NAME"
    ),
    "data text --source {run} --length 65536": "--length 65,536: must be at most 65,535",
    "data sudoku-4 --length 9": "--length 9: is for text, and sudoku-4 has no such setting",
    "data text --source {run} --show 2": "--show is for puzzles, not for text",
    "evaluate sudoku-6-mdm --judge trigrams": "--evaluator trigrams: is for generated text",
    "likelihood {run} --data {run}": "manifest.json is missing",
    "sample {run} --num-samples 1 --prompt " + "x" * 99: "prompt of",
    "sample {run} --prompt \udcff": "can't encode character '\\udcff'",
    "sample sudoku-6-mdm --prompt a": "--prompt a: is for text",
    "evaluate {run}": "--evaluator trigrams: learns from held-out text. Name a data set with",
    "evaluate {run} --judge {run}/nowhere": (
        "must be a directory or a name on the Hub with a causal language model"
    ),
    "evaluate {run} --data {run} --judge smollm2": (
        "with --evaluator smollm2: only trigrams learn from a data set. Leave one of the two out"
    ),
    "likelihood {run} --text README.md --latent-policy random": (
        "--latent-policy random with --latents 0: there are no latent tokens to choose"
    ),
    "likelihood {run}": "--text with --data: exactly one is needed, --text FILE or --data DIR",
    "likelihood {run} --text {run}/nowhere": "No such file or directory: '{run}/nowhere'",
    "likelihood {run} --text {run}/config.json --latents -2": "--latents -2: must be a whole number from 0",
    "likelihood {run} --text {run}/config.json --latents 2 --orders 0": (
        "--orders 0: must be a whole number from 1"
    ),
    "likelihood {run} --text README.md --latents 2 --latent-policy relevant": (
        "--latent-policy relevant: text has no validation examples. Name a data set with"
    ),
    "likelihood sudoku-6-mdm --text a": "learned sudoku-6, which is not text. Use a text model",
}


def test_held_out_sequences_are_of_all_held_out_documents(tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(200):
        (tmp_path / "texts" / f"{number}.txt").write_text(article(number))
    config = DataConfig("text", tmp_path / "all", source=str(tmp_path / "texts"), length=32)
    _, every = load_data(make_data(config))
    _, few = load_data(make_data(replace(config, out=tmp_path / "few", num_test=5, num_train=7)))
    assert (few["test"].tokens == every["test"].tokens[evenly(len(every["test"].tokens), 5)]).all()
    assert (few["train"].tokens == every["train"].tokens[:7]).all()
    assert evenly(10, 4).tolist() == [0, 2, 5, 7]
    assert evenly(3, 9).tolist() == [0, 1, 2]


def test_a_tokenizer_of_others_is_taken_whole(tmp_path):
    learned = learn_bpe(iter([article(i) for i in range(9)]), 300)
    learned.inner.enable_truncation(4)
    learned.inner.enable_padding(length=9)
    (tmp_path / "cut.json").write_bytes(learned.inner.to_str().encode())
    (ids,) = read_tokenizer(str(tmp_path / "cut.json")).encode([article(1)])
    assert len(ids) > 20
    about = json.loads(learn_bpe(iter(["a b"]), 300).to_json())
    about["added_tokens"][0]["id"] = about["model"]["vocab"][END] = 999
    (tmp_path / "gap.json").write_text(json.dumps(about))
    assert read_tokenizer(str(tmp_path / "gap.json")).vocab_size == 1_000


def test_a_tokenizer_that_fails_on_a_text_is_named(tmp_path):
    inner = Tokenizer(models.WordLevel({END: 0, "cell": 1}, unk_token="[UNK]"))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"tokenizer.json: .*\[UNK\].*\. Use another tokenizer"):
        read_tokenizer(str(tmp_path)).encode(["row"])


@pytest.mark.parametrize("name", ["../tokenizer.json", "/etc/passwd", "nowhere\n.json", "gpt2"])
def test_a_folder_names_no_tokenizer_outside_of_it(data, tmp_path, name):
    shutil.copytree(data, tmp_path / "data")
    shutil.copy(data / "tokenizer.json", tmp_path)
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["task"]["tokenizer"] = name
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        ValueError, match=r"tokenizer='.*': must be bytes or tokenizer.json, a file of the same directory"
    ) as error:
        load_data(tmp_path / "data")
    assert "\n" not in str(error.value)


def test_a_run_whose_tokenizer_was_swapped_is_refused(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_bytes(
        learn_bpe(iter(["the box is in the red tree"]), 300).to_json()
    )
    assert main(["sample", str(tmp_path / "run"), "--num-samples", "1"]) == 2
    assert "tokenizer.json: is not the tokenizer that was saved here" in capsys.readouterr().err


def whole_pieces(text, size):
    """Cut a text that is completely in memory, as the reference."""
    start = 0
    while start < len(text):
        found = ((text.find(gap, start + size, start + 2 * size), len(gap)) for gap in ("\n\n", "\n", " "))
        stop = next((place + length for place, length in found if place >= 0), start + 2 * size)
        yield text[start:stop]
        start = stop


@given(st.text("ab \n\r", max_size=60), st.integers(1, 9))
def test_a_text_is_cut_in_the_same_places_however_it_is_read(text, block):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PIECES", 4), ("SHORTEST", 3), ("LONGEST", 6)):
            patch.setattr(f"latent_tokens.data.corpus.{name}", value)
        blocks = [text[start : start + block] for start in range(0, len(text), block)]
        assert length_of(blocks) >= min(len(text), 24)
        cut = list(pieces([*blocks[:1], "", *blocks[1:]], length_of(["", *blocks])))
    assert cut == list(whole_pieces(text, max(3, min(6, len(text) // 4))))


@pytest.mark.parametrize("block", [3, 4, 5, 7, 100])
def test_a_file_is_read_in_blocks_as_if_it_were_whole(tmp_path, monkeypatch, block):
    monkeypatch.setattr("latent_tokens.data.corpus.BLOCK", block)
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffa\r\né\r\n\ufeff€\rx\n\r\n😀\r".encode())
    assert "".join(blocks_of(file)) == "a\né\n\ufeff€\nx\n\n😀\n"
    file.write_bytes(b"ab\ncdef\xe2\x82")
    with pytest.raises(
        ValueError, match=r"a.txt: not UTF-8 \(unexpected end of data\)\. Convert it to UTF-8"
    ):
        list(blocks_of(file))


def test_folder_source_reads_text_files_and_counts_the_others(tmp_path, capsys):
    place = tmp_path / ".hidden" / "texts"
    for name in ("b.TXT", "a.md", "c", "sub/d.rst", "e.JSONL", "f.html", ".g.txt", ".git/h.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"{name} {article(1)}")
    assert [text.split()[0] for text in documents(place, "text")] == ["a.md", "b.TXT", "c", "sub/d.rst"]
    assert files_of(place)[1] == 2
    assert (
        main(["data", "text", "--source", str(place), "--length", "16", "--out", str(tmp_path / "out")]) == 0
    )
    said = (
        "not read: 2 files. A directory is searched for .txt, .md, .rst, .text and files without a "
        "suffix. Name a .jsonl file itself.\n"
    )
    assert said in capsys.readouterr().err
    for name in ("b.TXT", "a.md", "c", "sub/d.rst"):
        (place / name).unlink()
    with pytest.raises(
        ValueError,
        match=r"no text files in it \(.txt, .md, .rst, .text or no ending\)\. Name one of its 2 other files",
    ):
        list(documents(place, "text"))


def test_lines_of_json_are_named_where_they_cannot_be_read(tmp_path):
    file, fine = tmp_path / "a.JSONL", b'\xef\xbb\xbf{"text": "a"}\n'
    for content, message in {
        b'{"text": "\xff"}': "line 2: not JSON .*utf-8",
        b"[" * 100_000: "line 2: not JSON",
        b'["text"]': "line 2: must be an object with a text",
    }.items():
        file.write_bytes(fine + content)
        with pytest.raises(ValueError, match=message):
            list(documents(file, "text"))
    file.write_bytes(fine)
    assert list(documents(file, "text")) == ["a"]


def test_manifest_counts_documents_and_tokens(tmp_path, monkeypatch):
    texts = [f"{number:03}" for number in range(64)]
    homes = {
        split: [text for text in texts if split_of(text) == split]
        for split in ("train", "validation", "test")
    }
    assert all(
        split_of(text) == {1: "validation", 2: "test"}.get(key_of(text)[0] % 16, "train") for text in texts
    )
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, texts[0], " ", " "]))
    monkeypatch.setattr("latent_tokens.data.corpus.MAX_HELD_OUT", 1)
    monkeypatch.setattr("latent_tokens.data.corpus.BATCH", 4)
    done = []
    folder = make_data(
        DataConfig("text", tmp_path / "out", source=str(file), length=6, num_train=5, num_test=0), done.append
    )
    assert sum(done) == 67
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["empty"], manifest["repeated"]) == (2, 1)
    found = {
        split: (about["examples"], about["documents"], about["tokens"])
        for split, about in manifest["splits"].items()
    }
    count = len(homes["validation"])
    assert found == {"train": (5, 5, 20), "validation": (1, count, 4 * count)}
    assert not (folder / "test.tokens.npy").exists()
    _, splits = load_data(folder)
    end = 256
    assert splits["train"].tokens.tolist() == [[end, *text.encode(), end, end] for text in homes["train"][:5]]
    learned = make_data(DataConfig("text", tmp_path / "bpe", source=str(file), length=6, tokenizer="bpe:280"))
    assert (learned / "tokenizer.json").read_bytes() == learn_bpe(
        iter([*homes["train"], texts[0], " ", " "]), 280
    ).to_json()


def test_long_document_is_cut_as_a_file_is(tmp_path, monkeypatch):
    monkeypatch.setattr("latent_tokens.data.corpus.LONGEST_DOCUMENT", 300)
    texts = ["short", "a" * 300, "\n\n".join(article(i) for i in range(9))]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    cut = list(documents(file, "text"))
    assert cut[:2] == texts[:2]
    assert cut[2:] == list(pieces([texts[2]], len(texts[2])))
    assert len(cut) > 3


def test_tokenizer_end_and_vocabulary_size_are_checked(tmp_path):
    words = {"a": 1, "</s>": 0, END: 2}
    assert Learned(Tokenizer(models.WordLevel(words)), "").end == 2
    del words[END]
    assert Learned(Tokenizer(models.WordLevel(words)), "").end == 0
    for other in ("<|end_of_text|>", "[SEP]"):  # of Llama 3 and BERT
        assert Learned(Tokenizer(models.WordLevel({"a": 1, other: 0})), "").end == 0
    for size, kind in ((65_535, np.uint16), (65_536, np.uint32)):
        learned = Learned(Tokenizer(models.WordLevel({**words, "b": size - 1}, unk_token="a")), "")
        assert learned.vocab_size == size
        assert learned.encode(["b"])[0].dtype == kind
        assert learned.encode(["b"])[0].tolist() == [size - 1]
    with pytest.raises(ValueError, match=r"name: none of .* is one of its tokens, so documents"):
        Learned(Tokenizer(models.WordLevel({"a": 0})), "name")
    for size in (257, 65_535):
        learned = learn_bpe(iter(["a"]), size)
        assert learned.decode(learned.encode(["é"])[0].tolist()) == "é"
    with pytest.raises(ValueError, match=r"directory without tokenizer.json. Save one there"):
        read_tokenizer(str(tmp_path))
    inner = learned.inner
    inner.post_processor = processors.TemplateProcessing(f"$0 {END}", special_tokens=[(END, learned.end)])
    inner.enable_padding(length=99)
    assert len(Learned(inner, "").encode(["a"])[0]) == 1


def test_hub_without_a_network_fails_at_once(monkeypatch, capfd):
    asked = []

    def refuse(url, token):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refuse)
    with pytest.raises(
        ValueError, match=r"tokenizer=owner/no: must be bytes, .* or a name on the Hub \(no network\)"
    ):
        read_tokenizer("owner/no")
    with pytest.raises(
        ValueError, match=r"judge=owner/no: must be a directory or a name on the Hub .* \(no network\)"
    ):
        LanguageModel("owner/no")
    assert [url.partition("owner/no")[2] for url in asked] == [
        "/resolve/main/tokenizer.json",
        "/resolve/main/config.json",
    ]
    assert capfd.readouterr() == ("", "")


def test_rows_of_a_hugging_face_data_set_are_documents(tmp_path):
    rows = datasets.Dataset.from_dict({"body": ["One text.", "Another."], "number": [1, 2]})
    rows.save_to_disk(tmp_path / "plain")
    datasets.DatasetDict(test=rows.select([0]), train=rows).save_to_disk(tmp_path / "dict")
    for name in ("plain", "dict"):
        assert list(documents(tmp_path / name, "body")) == ["One text.", "Another."]
    with pytest.raises(
        ValueError, match=r"record 1 has no text in the field text\. Name one of body, number with --field"
    ):
        list(documents(tmp_path / "plain", "text"))
    (tmp_path / "plain" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="no data set that can be read"):
        list(documents(tmp_path / "plain", "body"))


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_gets_one_line(run, capsys, command):
    assert main(command.format(run=run).split(" ")) == 2
    said = capsys.readouterr().err
    assert MISTAKES[command].replace("{run}", str(run)) in said
    assert len([line for line in said.splitlines() if line.startswith("latent-tokens:")]) == 1
