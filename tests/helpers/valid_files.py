"""Valid files of each kind that the package reads, as {name: content} of a directory."""

import pickle

import numpy as np

from latent_tokens import METHODS, Transformer, save_pretrained
from latent_tokens.tasks import Text, description
from test_sources import PUZZLE, extreme_csv, shah_rows, shah_zebras

COUNTDOWN = '{"input": "3,5,7,15", "output": "3+5=8,8+7=15"}\n'


def files(*folders):
    """Return inputs: the files of each directory by name."""
    return [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]


def written(path, write):
    """Return the input of a directory with one file, which a function writes."""
    path.parent.mkdir()
    write(path)
    return files(path.parent)


def save_model(folder, method, task):
    net = Transformer("pico", task.vocab_size, task.length)
    net.method = METHODS[method]
    beside = task.files() if isinstance(task, Text) else {}
    save_pretrained(net, folder, about={"task": description(task), "name": method}, beside=beside)
    return folder


def puzzle_files(home):
    """Return files of published puzzles: (task, name) -> inputs."""
    csv = extreme_csv(PUZZLE.generate(3, seed=1))
    write = {
        ("sudoku-puzzle", "a.npy"): lambda path: np.save(path, shah_rows(3)[0]),
        ("sudoku-puzzle", "a.csv"): lambda path: path.write_text(csv),
        ("sudoku-puzzle", "a.txt"): lambda path: path.write_text(f"{csv.split(',')[4]}\n"),
        ("zebra", "a.pkl"): lambda path: path.write_bytes(pickle.dumps(shah_zebras(2)[0], 2)),
        ("countdown-3", "a.jsonl"): lambda path: path.write_text(COUNTDOWN),
    }
    return {(task, name): written(home / f"from-{name}" / name, write[task, name]) for task, name in write}
