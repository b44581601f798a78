"""Print what a refactoring must not change: losses, samples and likelihoods. Freeze the recipe hashes.

    python scripts/fingerprints.py > tests/data/fingerprints.json    # what is checked in
    python scripts/fingerprints.py --check                      # compare; exit code 1 if anything differs
    python scripts/fingerprints.py --check other.json                # compare with another file
    python scripts/fingerprints.py --freeze-recipes                  # write tests/data/recipes-0.2.json again
    python scripts/fingerprints.py --freeze-recipes "cpu, zebra"     # of this scale and task only

`--check` also compares with version 0.2 (tests/data/fingerprints-0.2.json), which is never written again.
tests/data/gone.txt names what was removed or changed since, with a reason.

Hashes, tokens, shapes and names must be equal. A float is printed exactly, in hexadecimal. It may differ by a
relative 1e-6, because another CPU sums in another order. Tokens are equal on another CPU unless rounding
changes a choice. In that case run the script on both commits on that CPU and compare the two files.
"""

import argparse
import hashlib
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import torch

from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    Size,
    Transformer,
    as_tensors,
    entropy,
    equal_parts,
    generate,
    given,
    growing,
    influence,
    left_to_right,
    log_likelihood,
    loss,
    margin,
    random,
    relevant,
    reverse_process,
)
from latent_tokens.core import sampling as reference
from latent_tokens.paper.recipes import every_recipe
from latent_tokens.paper.scales import SCALES
from latent_tokens.storage import read_lines
from latent_tokens.tasks import configured

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
STORED = DATA / "fingerprints.json"
FROZEN = DATA / "fingerprints-0.2.json"
GONE = DATA / "gone.txt"
RECIPES = DATA / "recipes-0.2.json"
ROWS = ROOT / "results" / "cpu" / "rows.jsonl"

TOLERANCE = 1e-6  # of a float, relative to its size
LONG = 200  # in sequences that may be longer, all but the last NUM_OPEN positions are given
NUM_OPEN = 32
BATCH = 3
VERY_LONG = 1_000  # of such sequences the batch has one
NETWORK = Size(16, 2, 2)
ALL_METHODS = (*METHODS, "ar-mtp-window-4", "ar-ntp-4")
MANY_DECODINGS = ("sudoku-4", "sudoku-6")  # the tasks on which every decoding is tried

FEW = {
    "own n, k=1": Decoding(1),
    "n=2, k=1": Decoding(1, latents=2),
    "own n, k=4": Decoding(candidates=4),
    "own n, k=1, two tokens a step, temperature 0": Decoding(1, tokens_per_step=2, temperature=0),
}
NEAR_TIE = "own n, k=4"  # of which rotary positions need a row of given tokens
MANY = FEW | {
    "n=0, k=1": Decoding(1, latents=0),
    "n=all, k=1": Decoding(1, latents="all"),
    "n=half, k=1": Decoding(1, latents=lambda masked: masked // 2),
    "n=0, k=4": Decoding(latents=0, candidates=4),
    "n=2, k=4": Decoding(latents=2, candidates=4),
    "n=2, k=4, temperature 0": Decoding(latents=2, candidates=4, temperature=0),
    "n=2, k=4, two tokens a step": Decoding(latents=2, candidates=4, tokens_per_step=2),
    "n=2, random latents": Decoding(1, latents=2, latent_policy=random),
    "k=all": Decoding(candidates="all"),
    "k=growing": Decoding(candidates=growing),
    "k=3, margin": Decoding(candidates=3, confidence=margin),
    "k=3, entropy, no refresh": Decoding(candidates=3, confidence=entropy, refresh=False),
    "left to right": Decoding(1, order=left_to_right),
    "left to right, n=2": Decoding(1, order=left_to_right, latents=2),
    "temperature 0.7, top_p 0.9": Decoding(1, temperature=0.7, top_p=0.9),
    "equal parts": Decoding(1, tokens_per_step=equal_parts(5)),
    "reverse process": Decoding(1, tokens_per_step=reverse_process(5)),
}


def digest(*parts):
    """Return twelve hexadecimal digits of the hash of arrays, tensors and texts."""
    content = hashlib.sha256()
    for part in parts:
        array = part.numpy() if isinstance(part, torch.Tensor) else part
        content.update(array.tobytes() if isinstance(array, np.ndarray) else repr(array).encode())
    return content.hexdigest()[:12]


def exact(value):
    """Return a number of Python, numpy or torch as exact text."""
    return value.item().hex()


def network(task, positions="both"):
    """Return a tiny network with fixed weights, large enough that its input matters."""
    torch.manual_seed(0)
    net = Transformer(NETWORK, task.vocab_size, task.length, positions).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return net


def batch_of(task):
    """Return (tokens, known, lengths) of the first examples. Long ones have all but the last tokens known."""
    tokens, known, lengths = as_tensors(
        task.generate(BATCH, seed=0).take(slice(1 if task.length > VERY_LONG else BATCH))
    )
    if task.length > LONG:
        known = known | (torch.arange(task.length) < lengths[:, None] - NUM_OPEN)
    return tokens, known, lengths


def training_losses(net, method, tokens, known, lengths):
    """Return the losses of three batches, and the norm of the gradient of their sum."""
    net.zero_grad()
    losses = [
        loss(net, method, tokens, known, torch.Generator().manual_seed(seed), lengths=lengths)
        for seed in range(3)
    ]
    sum(losses).backward()
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return {
        "losses": [exact(value) for value in losses],
        "gradient norm": exact(torch.stack([g.norm() for g in gradients]).norm()),
    }


def sample(function, net, method, decoding, tokens, known, lengths):
    """Return the hash of the samples of `function`, or "refused" if the method does not support them."""
    try:
        made = function(net, method, tokens, known, decoding, 7, lengths=lengths)
    except ValueError:
        return "refused"
    return digest(made.tokens, made.order, made.tokens_processed, made.forward_passes)


def samples(net, method, decodings, batch):
    """Return the samples of each decoding. Those of the optimized path are listed if they differ."""
    found = {}
    for name, decoding in decodings.items():
        found[name] = sample(reference.generate, net, method, decoding, *batch)
        fast = sample(generate, net, method, decoding, *batch)
        if fast != found[name]:
            found[f"{name}, fast path"] = fast
    return found


def methods_on(task, methods=ALL_METHODS):
    """Return losses and samples of methods on a task."""
    net, batch = network(task), batch_of(task)
    decodings = MANY if task.name in MANY_DECODINGS else FEW
    return {
        f"{name} on {task.name}": training_losses(net, METHODS[name], *batch)
        | samples(net, METHODS[name], decodings, batch)
        for name in methods
    }


def methods_on_tasks():
    """Return losses and samples of every method on every task."""
    found = {}
    for task in {task.name: task for task in TASKS.values()}.values():
        found |= methods_on(task)
    return found


def other_decodings():
    """Return results of special settings: position encodings, a given schedule, latents by relevance."""
    task, found = TASKS["sudoku-4"], {}
    tokens, known, lengths = batch_of(task)
    batches = {
        # With rotary positions, predictions from masked tokens alone tie, and rounding would choose.
        "rotary": (tokens, known | (torch.arange(task.length) == 0), lengths),
        "learned": (tokens, known, lengths),
    }
    for positions, batch in batches.items():
        for name in ALL_METHODS:
            net = network(task, positions)
            decodings = {key: FEW[key] for key in FEW if (positions, key) != ("rotary", NEAR_TIE)}
            found[f"{name}, {positions} positions"] = training_losses(net, METHODS[name], *batch) | samples(
                net, METHODS[name], decodings, batch
            )
    # With one given token two candidates differ by a part in 100,000, and the CPU would choose.
    row_given = (tokens, known | (torch.arange(task.length) < task.side), lengths)
    for name in ALL_METHODS:
        found[f"{name}, rotary positions"] |= samples(
            network(task, "rotary"), METHODS[name], {f"{NEAR_TIE}, a row given": FEW[NEAR_TIE]}, row_given
        )
    schedule = torch.randperm(task.length, generator=torch.Generator().manual_seed(2))
    relation = torch.rand(
        task.length, task.length, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    by_hand = {
        "a given schedule": Decoding(1, order=given(schedule)),
        "n=3, relevant latents": Decoding(latents=3, candidates=2, latent_policy=relevant(relation)),
    }
    for name in ALL_METHODS:
        found[f"{name}, by hand"] = samples(network(task), METHODS[name], by_hand, (tokens, known, lengths))
    return found


def likelihoods():
    """Return each row's log-likelihood along one order for several n, and the influence between positions."""
    found = {}
    for task in (TASKS["sudoku-4"], TASKS["zebra-3"]):
        net, (tokens, known, lengths) = network(task), batch_of(task)
        rank = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(1))
        rank[torch.arange(task.length) >= lengths[:, None]] = 2
        shuffled = rank.masked_fill(known, -1).argsort(dim=1, stable=True)
        for name in ALL_METHODS:
            method = METHODS[name]
            order = left_to_right(known) if method.is_left_to_right else shuffled
            for latents in (None, 0, 2, "all"):
                key = f"{name} on {task.name}, n={latents}"
                try:
                    rows = log_likelihood(net, method, tokens, order, known.sum(1), lengths, latents)
                    found[key] = [exact(value) for value in rows.sum(1)]
                except ValueError:
                    found[key] = "refused"
            if method.readout != "shifted" and task.name == "sudoku-4":
                relation = influence(
                    net, method, tokens, known, torch.Generator().manual_seed(0), lengths=lengths
                )
                found[f"influence, {name}"] = exact(relation.norm())
    return found


def examples():
    """Return the examples that each task generates, with both paddings if it has any."""
    made = {}
    for name, task in {task.name: task for task in TASKS.values()}.items():
        for padding in ("none", "paper") if hasattr(task, "padding") else (None,):
            settings = {} if padding is None else {"padding": padding}
            key = name if padding is None else f"{name}, padding {padding}"
            made[key] = digest(*configured(name, settings).generate(4, seed=1))
    return made


def stored_recipes():
    """Return the recipe hashes of the rows in results/cpu."""
    return {row["recipe"] for row in read_lines(ROWS)}


def every_recipe_hash():
    """Return the hashes of all recipes, by scale and task, then by cell, one per seed.

    Each scale and task also has the number of rows in results/cpu that its recipes find.
    """
    stored, listed = stored_recipes(), {}
    for scale in SCALES:
        for recipe in every_recipe(scale, Path("runs")):
            entry = listed.setdefault(f"{scale}, {recipe.cell.task}", {"rows": 0, "recipes": {}})
            entry["rows"] += recipe.hash in stored
            hashes = entry["recipes"].setdefault(name_of_cell(recipe.cell), [])
            assert recipe.training.seed == len(hashes)
            hashes.append(recipe.hash)
    return listed


def name_of_cell(cell):
    """Return method, order, number of latents, puzzles to infill and k of a cell."""
    latents = "own n" if cell.latents is None else f"n={cell.latents}"
    parts = (cell.method, cell.order, latents, cell.problems, cell.legacy_name)
    return ", ".join(part for part in parts if part)


def freeze_recipes(names):
    """Write the hashes of all recipes, or those of some scales and tasks, and print how many there are."""
    found = every_recipe_hash()
    if unknown := set(names) - found.keys():
        sys.exit(f"{', '.join(sorted(unknown))}: unknown. Name some of: {'; '.join(found)}")
    kept = json.loads(RECIPES.read_text()) if names else {}
    frozen = kept | {name: found[name] for name in names or found}
    # One line per cell.
    text = json.dumps(dict(sorted(frozen.items())), indent=1, sort_keys=True)
    RECIPES.write_text(re.sub(r"\[[^\]]*\]", lambda hashes: " ".join(hashes[0].split()), text) + "\n")
    num_recipes = sum(len(hashes) for entry in frozen.values() for hashes in entry["recipes"].values())
    num_rows = sum(entry["rows"] for entry in frozen.values())
    of_all = f"{num_rows} of {len(stored_recipes())} rows in {ROWS.parent.name}"
    print(f"{num_recipes} recipes, which find {of_all}")


PARTS = {
    "methods on tasks": methods_on_tasks,
    "other decodings": other_decodings,
    "likelihoods": likelihoods,
    "examples": examples,
}


def fingerprints():
    """Return all fingerprints."""
    torch.set_num_threads(1)
    return {name: part() for name, part in PARTS.items()}


def flat(value, name=""):
    """Return (name, leaf) of nested dicts and lists."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, inner in items for leaf in flat(inner, f"{name} / {key}" if name else str(key))]
    return [(name, value)]


def near(a, b):
    """Return whether two leaves are equal, floats up to TOLERANCE."""
    if isinstance(a, str) and isinstance(b, str) and "0x" in a and "0x" in b:
        return math.isclose(float.fromhex(a), float.fromhex(b), rel_tol=TOLERANCE)
    return a == b


def differences(stored, found):
    """Return one line per leaf that differs, is missing or is new."""
    stored, found = dict(flat(stored)), dict(flat(found))
    pairs = {name: (stored.get(name, "nothing"), found.get(name, "nothing")) for name in stored | found}
    return [f"{name}: {a} before, {b} now" for name, (a, b) in sorted(pairs.items()) if not near(a, b)]


def gone():
    """Return the reason of each key of version 0.2 that is no longer there. It covers the keys below it."""
    lines = [line for line in GONE.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(" | ") for line in lines)


def differences_from_frozen(found):
    """Return one line per leaf of version 0.2 that differs or is missing, but for those that are gone.

    Also return one line per key of gone.txt that version 0.2 does not have.
    """
    frozen, found, keys = dict(flat(json.loads(FROZEN.read_text()))), dict(flat(found)), gone()

    def is_below(name, key):
        return f"{name} / ".startswith(f"{key} / ")

    unknown = [key for key in keys if not any(is_below(name, key) for name in frozen)]
    kept = {name: value for name, value in frozen.items() if not any(is_below(name, key) for key in keys)}
    lines = differences(kept, {name: found[name] for name in kept if name in found})
    return [*lines, *(f"{key}: is in gone.txt and not in version 0.2" for key in unknown)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    of_check = "compare with a file, by default tests/data/fingerprints.json"
    parser.add_argument("--check", nargs="?", type=Path, const=STORED, help=of_check)
    of_recipes = "write the hashes of recipes; default: all"
    parser.add_argument("--freeze-recipes", nargs="*", metavar="SCALE, TASK", help=of_recipes)
    arguments = parser.parse_args()
    if arguments.freeze_recipes is not None:
        freeze_recipes(arguments.freeze_recipes)
        return 0
    found = json.loads(json.dumps(fingerprints()))
    if arguments.check is None:
        print(json.dumps(found, indent=1, sort_keys=True))
        return 0
    lines = differences(json.loads(arguments.check.read_text()), found)
    if arguments.check == STORED:
        lines += [f"version 0.2: {line}" for line in differences_from_frozen(found)]
    print(*lines, sep="\n")
    differing = f"{len(lines)} of {len(flat(found))} fingerprints differ"
    print(differing if lines else f"{len(flat(found))} fingerprints are equal")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
