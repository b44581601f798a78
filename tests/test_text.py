"""Text: packed sequences equal the documents, prompts have gaps, and the command line trains a model."""

import hashlib
import json
import shutil
from dataclasses import replace

import datasets
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, processors

import latent_tokens as lt
from helpers.refusals import refused, refused_command
from latent_tokens.cli import main
from latent_tokens.data.corpus import (
    LONGEST_DOCUMENT,
    SHORTEST,
    documents,
    files_of,
    length_of,
    pieces,
    split_of,
    text_blocks,
)
from latent_tokens.evaluation.likelihood import likelihoods, num_bytes
from latent_tokens.evaluation.text import LanguageModel
from latent_tokens.tasks import SPLITS, Text
from latent_tokens.tasks.base import evenly
from latent_tokens.tasks.text.task import text_described
from latent_tokens.tasks.text.tokenizer import END, TOKENIZER_FILE, Bytes, Learned, learn_bpe, read_tokenizer

WORDS = (
    "the", "cell", "row", "box", "unit", "candidate", "is", "open", "known", "masked", "latent", "and",
    "shown", "decoded", "next", "first",
)  # fmt: skip


def article(number):
    rng = np.random.default_rng(number)
    return " ".join(rng.choice(WORDS, size=80)) + f" {number}."


def text_data(folder, source, **settings):
    return lt.make_data(lt.DataConfig("text", folder, source=str(source), **settings))


def lines_of_json(file, texts, field="text"):
    file.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))
    return file


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
    return text_data(tmp_path_factory.mktemp("data") / "text", folder, length=32, tokenizer="bpe:300")


def test_documents_are_complete_in_one_split_each_once(folder, data, tmp_path):
    task, splits = lt.load_data(data)
    manifest = json.loads((data / "manifest.json").read_text())
    found = []
    for split, examples in splits.items():
        text = "".join(task.decode(row[1:-1]) for row in examples.tokens)
        *complete, _ = text.split(END)  # the last one may be cut
        assert {split_of(document) for document in complete} == {split}
        found += complete
        assert (examples.tokens[:, [0, -1]] == task.coder.end).all()
        assert examples.tokens.dtype == np.uint16
        assert not examples.known.any()
        about = manifest["splits"][split]
        assert about["examples"] == len(examples.tokens) == about["tokens"] // 30
    assert len(found) == len({article(number) for number in range(60)} & set(found)) >= 57
    again = text_data(tmp_path / "again", folder, length=32, tokenizer="bpe:300")
    for name in ("train.tokens.npy", "validation.tokens.npy", "tokenizer.json"):
        assert (again / name).read_bytes() == (data / name).read_bytes()


def test_long_text_is_cut_into_documents_of_every_split(tmp_path):
    """One in a line of JSON is cut as a file is. Others stay as they are."""
    long = "\n\n".join(article(i) for i in range(2_500))
    texts = ["short", "a" * LONGEST_DOCUMENT, long]
    cut = list(documents(lines_of_json(tmp_path / "a.JSONL", texts, "body"), "body"))
    assert cut[:2] == texts[:2]
    parts = cut[2:]
    (tmp_path / "a.txt").write_text(long)
    assert list(documents(tmp_path / "a.txt", "text")) == parts == list(pieces([long], len(long)))
    assert "".join(parts) == long
    size = max(SHORTEST, len(long) // 256)
    assert all(size <= len(part) < size + 1_000 for part in parts[:-1])
    assert {split_of(part) for part in parts} == {"train", "validation", "test"}


BAD = [  # the file, its content, options, and what the line names
    ("a.txt", b"fine\nnot \xff fine", "", "a.txt: not UTF-8 (invalid start byte). Convert"),
    ("a.jsonl", b'{"text": "a"}\nnope\n', "", "line 2: not JSON"),
    ("a.jsonl", b'{"text": "a"}\n' + b"[" * 100_000, "", "line 2: not JSON"),
    ("a.jsonl", b'{"text": "half of a pair: \\ud83d"}\n', "", "line 1: not JSON"),
    ("a.jsonl", b'{"text": "a"}\n["text"]', "", "line 2: must be an object with a text"),
    ("a.jsonl", b'{"body": "a", "n": 1}', "", "no text in the field text. Name one of body, n"),
    ("a.jsonl", b'{"text": 1}', "--field text", "record 1 has no text in the field text"),
    ("a.CSV", b"text,label\nhello,1\n", "", "a.CSV: text is read from a file without columns"),
    ("a.txt", b"  \n", "", "no text: the source has no document"),
    ("a.txt", b"short", "", "not enough text for one sequence of 256 tokens"),
    ("a.txt", b"text", "--num-train 0", "--num-train 0: text has sequences to train on"),
    ("a.txt", b"text", "--skip-bad", "--skip-bad: text has no such setting"),
    ("a.txt", b"text", "--show 2", "--show is for puzzles"),
    ("a.txt", b"text", "--field text", "a.txt has no fields. Leave it out"),
    ("a.txt", b"text", "--length 65536", "--length 65,536: must be at most 65,535"),
    ("a.txt", b"text", "--tokenizer bpe:many", "must be bpe:SIZE with a whole number"),
    ("a.txt", b"text", "--tokenizer bpe:9", "must have at least 257 tokens"),
    ("a.txt", b"text", "--tokenizer {here}", "a directory without tokenizer.json. Save one there"),
    ("a.txt", b"text", "--tokenizer {here}/a.txt", "not a tokenizer"),
    ("sub/a.html", b"text", "", "no text files in it"),
    ("a.txt", b"text", "--source {here}/none", "not found. Name a text file, a directory of them"),
]


@pytest.mark.parametrize(("file", "content", "options", "message"), BAD)
def test_unreadable_source_gets_one_line_and_leaves_nothing(
    tmp_path, capsys, file, content, options, message
):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content)
    source = tmp_path / file.partition("/")[0]
    options = options.format(here=tmp_path)
    refused_command(capsys, f"data text --source {source} --out {tmp_path / 'out'} {options}", message)
    assert not (tmp_path / "out").exists()


BPE = learn_bpe(iter([article(i) for i in range(9)]), 300)


@pytest.mark.parametrize("coder", [Bytes(), BPE], ids=["bytes", "bpe"])
@given(text=st.text("ab 1\n\0\x7fé\u0301€\ufeff\N{OBJECT REPLACEMENT CHARACTER}😀"))
def test_a_tokenizer_gives_back_every_text(coder, text):
    (ids,) = coder.encode([text])
    assert coder.decode(ids.tolist()) == text


def test_unknown_token_is_shown_without_failing():
    unknown = "\N{REPLACEMENT CHARACTER}"
    assert Bytes().decode([104, 105, 256, 999, 0xE2]) == f"hi{END}{unknown}{unknown}"
    (ids,) = BPE.encode(["été"])
    assert BPE.decode([*ids, BPE.vocab_size, *ids, BPE.end]) == f"été{unknown}été{END}"
    with_gap = Learned(Tokenizer(models.WordLevel({"a": 0, "</s>": 2}, unk_token="a")), "with a gap")
    assert with_gap.decode([0, 1, 2]) == f"a{unknown}</s>"


def test_prompt_with_the_word_mask_is_refused():
    with refused("prompt with [MASK]", "Use a gap of underscores"):
        Text(length=16).encode("a [MASK] b")


def test_a_prompt_is_known_its_gaps_are_open():
    task = Text(12)
    problem = task.encode("ab___c")
    assert problem.tokens[0, :7].tolist() == [256, 97, 98, 256, 256, 256, 99]
    assert problem.known[0, :7].tolist() == [True, True, True, False, False, False, True]
    assert problem.lengths.tolist() == [7]
    assert task.encode("a__b").known[0, :5].all()  # no gap
    free = task.encode("ab")
    assert (free.lengths.tolist(), free.known[0].sum()) == ([12], 3)
    assert task.encode("x" * 11).lengths.tolist() == [12]
    with refused("prompt of 20 tokens: the limit is 11"):
        task.encode("x" * 20)


def test_document_ends_at_the_first_decoded_end_after_the_given_tokens():
    end = Bytes.end
    for tokens, known, text in (
        ([end, 97, 98, end, 99], [1, 0, 0, 0, 0], "ab"),
        ([97, end, 98, end, 99], [0, 0, 0, 0, 0], "a"),
        ([end, 97, end, 98, 99], [1, 1, 0, 1, 0], f"a{END}bc"),  # a gap that a prompt goes on after
        ([end, end, end, end, end], [1, 0, 0, 0, 0], ""),
        ([end, 97, 98, 99, 97], [1, 1, 1, 1, 1], "abca"),
    ):
        assert Text(5).document(np.array(tokens), np.array(known)) == text


def test_the_bounds_and_the_description_of_a_text():
    assert (Text(3).length, Text(65_535).length) == (3, 65_535)
    with refused("length=2: must be a whole number from 3"):
        Text(2)
    for about in ({"length": "9", "tokenizer": "bytes"}, {"length": 9}, {"length": 9, "tokenizer": 1}):
        with refused("no task of this version"):
            text_described(about, None)
    assert Text(9).fingerprint == Text(12).fingerprint == hashlib.sha256(b"bytes").hexdigest()[:8]
    made = Text(10).sequences("abcdefghijk")
    assert made.lengths.tolist() == [10, 5]
    assert made.tokens[0].tolist() == [256, *b"abcdefgh", 256]
    assert made.tokens[1, :5].tolist() == [256, *b"ijk", 256]


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "text"
    return lt.fit(
        "text", "scdm", out=out, steps=4, batch_size=4, data=data, evaluate_every=4, precision="fp32"
    )


def rows_of(capsys, *command):
    """Return the JSON that a command prints, a row per line."""
    assert main([*map(str, command), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_text_model_is_trained_and_sampled(run, capsys):
    assert lt.from_pretrained(run).vocab_size == 300
    assert [len(row["tokens"]) for row in rows_of(capsys, "sample", run, "--num-samples", 2)] == [32, 32]
    options = ["--num-samples", "1", "--prompt", "the ____ box", "--show", "--latents", "2"]
    assert main(["sample", str(run), *options]) == 0
    out = capsys.readouterr().out
    assert out.startswith("the")
    assert "4 tokens in" in out


def test_text_model_is_evaluated(run, data, tmp_path, capsys):
    rows = rows_of(capsys, "evaluate", run, "--data", data, "--num-samples", 3, "--latents", 0, "all")
    assert [row["latents"] for row in rows] == [0, "all"]
    expected = {"metric": "perplexity", "order": "uniform", "top_p": 0.9, "temperature": 1.0}
    for row in rows:
        assert expected.items() <= row.items()
        assert row["ci95"][0] < row["perplexity"] < row["ci95"][1]
        assert 0 < row["entropy"] < np.log(32)
        assert row["judge"].startswith("trigrams of ")
        assert row["judged_tokens"] == 3 * 31
    assert main(["export", str(run), str(tmp_path / "model")]) == 0
    assert "The evaluator of text is trigrams of" in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize("name", ["bytes", "bpe:300"])
def test_bytes_of_a_text_do_not_depend_on_where_a_character_is_cut(name, tmp_path):
    text = "日本語のテキスト, Größe, plain " * 9
    if name != "bytes":
        (tmp_path / TOKENIZER_FILE).write_bytes(learn_bpe(iter([article(1)]), 300).to_json())
        name = str(tmp_path)
    for length in (16, 17, 256):
        task = Text(length, name)
        assert num_bytes(task, task.sequences(text)) == len(text.encode())


def test_likelihood_of_a_window_names_its_latent_tokens():
    """A likelihood decodes one token per step, so a window of 5 has 4 latent tokens."""
    task = Text(24)
    net = lt.Transformer(lt.Size(16, 2, 1), task.vocab_size, task.length)
    net.method = replace(lt.METHODS["mdm"], window=5)
    (row,) = likelihoods(net, task, task.sequences("hello world"), lt.EvalConfig(), orders=1)
    assert row["latents"] == 4


def test_likelihood_of_a_text_file(run, tmp_path, capsys):
    text = article(99)[:90]
    (tmp_path / "a.txt").write_text(text)
    command = ["likelihood", str(run), "--text", str(tmp_path / "a.txt")]
    (row,) = rows_of(capsys, *command, "--orders", 3)
    assert len(row["nats"]) == 3
    assert row["perplexity"] == pytest.approx(np.exp(np.mean(row["nats"])))
    assert row["bytes"] == len(text.encode())
    bits = row["nats_per_token"] * row["tokens"] / np.log(2)
    assert row["bits_per_byte"] == pytest.approx(bits / row["bytes"])
    command += ["--order", "left_to_right"]
    assert main(command) == 0
    line = capsys.readouterr().out
    assert "standard error" not in line
    assert "bits per byte" in line
    assert lt.load(run).likelihood(text, orders=3) == [row]
    (nearest,), (random,) = (
        rows_of(capsys, *command, "--latents", 2, "--latent-policy", policy)
        for policy in ("nearest", "random")
    )
    assert (nearest["latent_policy"], random["latent_policy"]) == ("nearest", "random")
    assert nearest["nats_per_token"] != random["nats_per_token"]


MISTAKES = {
    "data sudoku-4 --length 9": "--length 9: is for text, and sudoku-4 has no such setting",
    "sample {run} --num-samples 1 --prompt " + "x" * 99: "prompt of",
    "sample {run} --prompt \udcff": "can't encode character '\\udcff'",
    "evaluate {run}": "--evaluator trigrams: learns from held-out text. Name a data set with",
    "evaluate {run} --data {run} --judge smollm2": "with --evaluator smollm2: only trigrams learn",
    "likelihood {run} --text README.md --latent-policy random": "--latent-policy random with --latents 0",
    "likelihood {run}": "exactly one of the two is needed. Name a text or a data set",
    "likelihood {run} --text {run}/nowhere": "{run}/nowhere: cannot be read (No such file",
    "likelihood {run} --text {run}/config.json --orders 0": "--orders 0: must be a whole number",
    "likelihood {run} --text README.md --latents 2 --latent-policy relevant": "has no validation examples",
    "likelihood sudoku-6-mdm --text a": "learned sudoku-6, which is not text. Use a text model",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_gets_one_line(run, capsys, command):
    refused_command(capsys, command.format(run=run).split(" "), MISTAKES[command].replace("{run}", str(run)))


def test_held_out_sequences_are_of_all_held_out_documents(tmp_path):
    source = lines_of_json(tmp_path / "a.jsonl", [article(number) for number in range(200)])
    _, every = lt.load_data(text_data(tmp_path / "all", source, length=32))
    _, few = lt.load_data(text_data(tmp_path / "few", source, length=32, num_test=5, num_train=7))
    assert (few["test"].tokens == every["test"].tokens[evenly(len(every["test"].tokens), 5)]).all()
    assert (few["train"].tokens == every["train"].tokens[:7]).all()
    _, short = lt.load_data(text_data(tmp_path / "short", source, length=3))
    assert len(short["test"]) == len(short["validation"]) == 1_024 < len(short["train"])


def test_a_tokenizer_of_others_is_taken_whole(tmp_path):
    """It does not cut, pad or frame a text."""
    learned = learn_bpe(iter([article(i) for i in range(9)]), 300)
    inner, end = learned.inner, learned.end
    inner.post_processor = processors.TemplateProcessing(f"$0 {END}", special_tokens=[(END, end)])
    inner.enable_truncation(4)
    inner.enable_padding(length=999)
    (tmp_path / "cut.json").write_bytes(learned.to_json())
    (ids,) = read_tokenizer(str(tmp_path / "cut.json")).encode([article(1)])
    assert ids.tolist() == BPE.encode([article(1)])[0].tolist()


def test_a_tokenizer_that_fails_on_a_text_is_named(tmp_path):
    inner = Tokenizer(models.WordLevel({END: 0, "cell": 1}, unk_token="[UNK]"))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"text 'row': .* of .*tokenizer.json\. Use other words"):
        read_tokenizer(str(tmp_path)).encode(["cell", "row"])


@pytest.mark.parametrize("name", ["../tokenizer.json", "nowhere\n.json"])
def test_a_folder_names_no_tokenizer_outside_of_it(data, tmp_path, name):
    shutil.copytree(data, tmp_path / "data")
    shutil.copy(data / "tokenizer.json", tmp_path)
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["task"]["tokenizer"] = name
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    with refused("must be bytes or tokenizer.json, a file of the same directory"):
        lt.load_data(tmp_path / "data")


def test_a_run_whose_tokenizer_was_swapped_is_refused(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_bytes(BPE.to_json())
    problem = "tokenizer.json: is not the tokenizer that was saved here"
    refused_command(capsys, f"sample {tmp_path / 'run'} --num-samples 1", problem)


def reference_pieces(text, size):
    """Cut a text that is completely in memory."""
    start = 0
    while start < len(text):
        found = ((text.find(gap, start + size, start + 2 * size), len(gap)) for gap in ("\n\n", "\n", " "))
        stop = next((place + length for place, length in found if place >= 0), start + 2 * size)
        yield text[start:stop]
        start = stop


@given(
    st.integers(0, 2_000), st.sampled_from(["a" * 200 + " \n\r", "a" * 999 + " ", "a"]), st.integers(1, 900)
)
def test_a_text_is_cut_in_the_same_places_however_it_is_read(length, letters, block):
    text = "".join(np.random.default_rng(length).choice(list(letters), length))
    blocks = [text[start : start + block] for start in range(0, len(text), block)]
    assert length_of(blocks) == len(text)
    cut = list(pieces([*blocks[:1], "", *blocks[1:]], len(text)))
    assert cut == list(reference_pieces(text, SHORTEST))


def test_a_large_file_is_read_as_if_it_were_in_one_block(tmp_path):
    file = tmp_path / "a.txt"
    text = "a\r\né\r\n\ufeff€\rx\n\r\n😀\r" * 100_000  # more than a block
    file.write_bytes(f"\ufeff{text}".encode())
    blocks = list(text_blocks(file))
    assert len(blocks) > 1
    assert "".join(blocks) == text.replace("\r\n", "\n").replace("\r", "\n")
    file.write_bytes(f"{text}cdef".encode() + b"\xe2\x82")
    with refused("a.txt: not UTF-8 (unexpected end of data). Convert it to UTF-8"):
        list(text_blocks(file))


def test_folder_source_reads_text_files_and_counts_the_others(tmp_path, capsys):
    place = tmp_path / ".hidden" / "texts"
    for name in ("b.TXT", "a.md", "c", "sub/d.rst", "e.JSONL", "f.html", ".g.txt", ".git/h.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"{name} {article(1)}")
    assert [text.split()[0] for text in documents(place, "text")] == ["a.md", "b.TXT", "c", "sub/d.rst"]
    assert files_of(place)[1] == 2
    options = ["--source", str(place), "--length", "16", "--out", str(tmp_path / "out")]
    assert main(["data", "text", *options]) == 0
    assert "not read: 2 files. A directory is searched for .txt, .md" in capsys.readouterr().err


def test_manifest_counts_documents_and_tokens(tmp_path):
    texts = [f"{number:03}" for number in range(64)]
    homes = {split: [text for text in texts if split_of(text) == split] for split in SPLITS}
    source = lines_of_json(tmp_path / "a.jsonl", [*texts, texts[0], " ", " "])
    counts = {"num_train": 5, "num_validation": 1, "num_test": 0}
    config = lt.DataConfig("text", tmp_path / "out", source=str(source), length=6, **counts)
    done = []
    folder = lt.make_data(config, done.append)
    assert sum(done) == 67
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["empty"], manifest["repeated"]) == (2, 1)
    count = len(homes["validation"])
    sizes = {split: [*entry.values()][:3] for split, entry in manifest["splits"].items()}
    assert sizes == {"train": [5, 5, 20], "validation": [1, count, 4 * count]}
    assert not (folder / "test.tokens.npy").exists()
    end = 256
    tokens = lt.load_data(folder)[1]["train"].tokens.tolist()
    assert tokens == [[end, *text.encode(), end, end] for text in homes["train"][:5]]
    learned = text_data(tmp_path / "bpe", source, length=6, tokenizer="bpe:280")
    trained = iter([*homes["train"], texts[0], " ", " "])
    assert (learned / "tokenizer.json").read_bytes() == learn_bpe(trained, 280).to_json()


def test_tokenizer_end_and_vocabulary_size_are_checked():
    for vocabulary, end in (
        ({"a": 1, "</s>": 0, END: 2}, 2),
        ({"a": 1, "</s>": 0}, 0),
        ({"a": 1, "<|end_of_text|>": 0}, 0),  # of Llama 3
        ({"a": 1, "[SEP]": 0}, 0),  # of BERT
    ):
        assert Learned(Tokenizer(models.WordLevel(vocabulary)), "").end == end
    with refused("name: none of "):
        Learned(Tokenizer(models.WordLevel({"a": 0})), "name")
    for size, kind in ((65_535, np.uint16), (65_536, np.uint32)):
        learned = Learned(Tokenizer(models.WordLevel({"a": 1, END: 0, "b": size - 1}, unk_token="a")), "")
        assert learned.vocab_size == size
        (ids,) = learned.encode(["b"])
        assert (ids.dtype, ids.tolist()) == (kind, [size - 1])
    smallest = learn_bpe(iter(["a"]), 257)
    assert smallest.decode(smallest.encode(["é"])[0].tolist()) == "é"


def test_hub_without_a_network_fails_at_once(monkeypatch, capfd):
    asked = []

    def refuse(url, token):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refuse)
    with refused("or a name on the Hub (no network)"):
        read_tokenizer("owner/no")
    with refused("evaluator=owner/no: must be a directory or a name on the Hub"):
        LanguageModel("owner/no")
    files = [url.partition("owner/no/resolve/main/")[2] for url in asked]
    assert files == ["tokenizer.json", "config.json"]
    assert capfd.readouterr() == ("", "")


def test_rows_of_a_hugging_face_data_set_are_documents(tmp_path):
    rows = datasets.Dataset.from_dict({"body": ["One text.", "Another."], "number": [1, 2]})
    rows.save_to_disk(tmp_path / "plain")
    datasets.DatasetDict(test=rows.select([0]), train=rows).save_to_disk(tmp_path / "dict")
    for name in ("plain", "dict"):
        assert list(documents(tmp_path / name, "body")) == ["One text.", "Another."]
    (tmp_path / "plain" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="no data set that can be read"):
        list(documents(tmp_path / "plain", "body"))
