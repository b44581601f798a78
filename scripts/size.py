"""Count what a reader of the package meets, next to version 0.2.0 and to the budget of the next version.

    python scripts/size.py                        # a table, without torch
    python scripts/size.py --json                 # the same numbers as one JSON object
    python scripts/size.py --files                # trace the files executed, in a minute

* A line of code has a token that is not a comment, outside the docstrings of modules, classes and functions.
* A guard is a function named check_*, a function that only raises, an `assert`, or an `except` or an `if`
  without `else` whose body ends in a raise.
* Import cycles are between files, by all import statements: of modules, in functions and for type checkers.
* Files executed have a function that is called in a step of `fit` and the draw of its batch, in a call of
  `generate`, or from the recipes of Table 1 to the row of one. `__init__` is left out, and so are imports.
  The table counts those of CONTRIBUTING.md. A test traces them, and compares.
"""

import argparse
import ast
import importlib
import io
import json
import re
import sys
import tempfile
import threading
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# fmt: off
ROWS = (  # key, label, version 0.2.0, budget
    ("code",       "lines of code",                          24_964, 12_800),
    ("lines",      "lines in all",                           36_599, 18_500),
    ("files",      "files",                                     306,    110),
    ("docstrings", "docstrings, % of the lines (at least)",    16.2,     16),
    ("wide",       "lines above 100 columns, %",                5.4,      2),
    ("module",     "longest module",                            260,    600),
    ("function",   "longest function, without docstring",        93,     60),
    ("small",      "modules below 45 lines of code",             71,     18),
    ("guards",     "guards, % of the lines of code",           11.2,      5),
    ("training",   "files executed: a training step",            25,     16),
    ("reference",  "files executed: decoding, reference",        21,     14),
    ("optimized",  "files executed: decoding, optimized",        29,     18),
    ("cell",       "files executed: a cell of Table 1",          98,     60),
    ("scripts",    "lines of scripts/",                       2_926,  1_800),
    ("tests",      "lines of tests/",                        31_057, 16_500),
    ("cycles",     "import cycles between files",                 2,      0),
)
# fmt: on
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
NOT_CODE = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")


def lines_of(node):
    """Return the numbers of the lines of a node."""
    return set(range(node.lineno, node.end_lineno + 1))


def docstring_of(node):
    """Return the lines of the docstring of a module, class or function."""
    has_one = isinstance(node, ast.Module | ast.ClassDef | FUNCTION) and ast.get_docstring(node) is not None
    return lines_of(node.body[0]) if has_one else set()


def code_of(text, nodes):
    """Return the lines of code of a file, from its text and all nodes of its tree."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = [
        (token.start[0], token.end[0]) for token in tokens if tokenize.tok_name[token.type] not in NOT_CODE
    ]
    lines = {line for first, last in spans for line in range(first, last + 1)}
    return lines.difference(*map(docstring_of, nodes))


def is_guard(node):
    """Return whether a node is a guard."""
    if isinstance(node, FUNCTION):
        body = node.body[bool(docstring_of(node)) :]
        only_raises = bool(body) and all(isinstance(statement, ast.Raise) for statement in body)
        return only_raises or node.name.lstrip("_").startswith("check_")
    is_branch = isinstance(node, ast.ExceptHandler) or (isinstance(node, ast.If) and not node.orelse)
    return isinstance(node, ast.Assert) or (is_branch and isinstance(node.body[-1], ast.Raise))


def imports_of(nodes, modules):
    """Return which of `modules` a file imports."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full_names = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules else node.module for name in full_names}
    return names & modules.keys()


def num_cycles(graph):
    """Return how many sets of modules reach each other, from the imports of each module."""
    reached = {module: set(targets) for module, targets in graph.items()}
    for middle in graph:
        for module in graph:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    groups = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
    return sum(len(group) > 1 for group in groups)


def count(root):
    """Return the numbers of the files of a repository, by key of ROWS."""
    source = root / "src"
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}
    trees = {path: list(ast.walk(ast.parse(text))) for path, text in texts.items()}
    code = {path: code_of(text, trees[path]) for path, text in texts.items()}
    lines = [line for text in texts.values() for line in text.splitlines()]
    nodes = [(path, node) for path, tree in trees.items() for node in tree]
    guards = {(path, line) for path, node in nodes if is_guard(node) for line in lines_of(node) & code[path]}
    num_code = sum(map(len, code.values()))

    parts = {path: path.relative_to(source).with_suffix("").parts for path in texts}
    modules = {".".join(name for name in names if name != "__init__"): path for path, names in parts.items()}
    graph = {module: imports_of(trees[path], modules) for module, path in modules.items()}

    def lines_in(folder):
        return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))

    return {
        "code": num_code,
        "lines": len(lines),
        "files": len(texts),
        "docstrings": 100 * sum(len(docstring_of(node)) for _, node in nodes) / len(lines),
        "wide": 100 * sum(len(line) > 100 for line in lines) / len(lines),
        "module": max(len(text.splitlines()) for text in texts.values()),
        "function": max(len(lines_of(n) - docstring_of(n)) for _, n in nodes if isinstance(n, FUNCTION)),
        "small": sum(len(code[path]) < 45 for path in texts if path.name != "__init__.py"),
        "guards": 100 * len(guards) / num_code,
        "scripts": lines_in(root / "scripts"),
        "tests": lines_in(root / "tests"),
        "cycles": num_cycles(graph),
    }


def files_to_read(text):
    """Return the files of each reading path that CONTRIBUTING.md lists, by key of ROWS."""

    def listed(pattern):
        return re.findall(r"`([\w/]+\.py)`", re.search(pattern, text, re.M | re.S)[1])

    reference = listed(r"^\* \*\*A reference decoding step\*\*: ([^\n]*)$")
    paths = {
        "training": listed(r"^\* \*\*A training step\*\*: ([^\n]*)$"),
        "reference": reference,
        "optimized": reference + listed(r"^\* \*\*An optimized decoding step\*\*: ([^\n]*)$"),
        "cell": listed(r"\| package \| files \|\n(.*?)\n\n"),
    }
    return {key: sorted(files) for key, files in paths.items()}


def function_in(package, name):
    """Return a function of a package, from the first of its modules that defines it."""
    source = ROOT / "src"
    for path in sorted((source / package).rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if any(isinstance(node, FUNCTION) and node.name == name for node in body):
            module = ".".join(path.relative_to(source).with_suffix("").parts)
            return getattr(importlib.import_module(module), name)
    raise ValueError(f"{package}: has no function {name}. Name the one that replaces it in scripts/size.py.")


def executed(action):
    """Return the files of the package that an action executes. It receives their set, and may clear it."""
    files = set()

    def trace(frame, event, argument):
        path = frame.f_code.co_filename
        if path.startswith(str(ROOT / "src")) and not path.endswith("__init__.py"):
            files.add(path.removeprefix(f"{ROOT}/src/latent_tokens/"))

    threading.settrace(trace)  # a thread of its own draws the batches
    sys.settrace(trace)
    try:
        action(files)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return files


def trace_all(folder):
    """Return the files executed, by key of ROWS. Models are written to a directory."""
    sys.path.insert(0, str(ROOT / "src"))
    import torch

    import latent_tokens as lt

    # Training: steps 4 to 6 of 8, each with the batch that is drawn meanwhile.
    task = lt.TASKS["sudoku-6"]
    settings = {"size": "pico", "steps": 8, "batch_size": 8, "num_train": 64, "num_validation": 16}

    def training(files):
        of_steps = set()

        def observe(stage, step):
            if (stage, step) == ("done", 3):
                files.clear()
            if (stage, step) == ("done", 6):
                of_steps.update(files)

        lt.fit(task.name, "scdm", out=tempfile.mkdtemp(dir=folder), observe=observe, **settings)
        files.intersection_update(of_steps)

    # Decoding: boards of 36 tokens. A cell: data, training, evaluation and the row.
    net = lt.Transformer("pico", task.vocab_size, task.length).eval()
    known = torch.zeros(2, task.length, dtype=torch.bool)
    request = (net, lt.METHODS["scdm"], known.long(), known, lt.Decoding(candidates=4, latents=4), 0)

    def cell(files):
        out = Path(tempfile.mkdtemp(dir=folder))
        recipes = function_in("latent_tokens/paper", "recipes")("table-1", "smoke", out)
        function_in("latent_tokens/paper", "run")(recipes[:1], out / "rows.jsonl")

    traced = {}
    for key, action in {
        "training": training,
        "reference": lambda files: function_in("latent_tokens/core", "generate")(*request),
        "optimized": lambda files: lt.generate(*request),
        "cell": cell,
    }.items():
        print(f"tracing: {key}", file=sys.stderr)
        action(set())
        traced[key] = sorted(executed(action))
    return traced


def main():
    """Count, trace and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--files", action="store_true", help="print the files executed, as JSON")
    arguments = parser.parse_args()
    if arguments.files:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(trace_all(folder), indent=2))
        return
    listed = files_to_read((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    counts = count(ROOT) | {key: len(files) for key, files in listed.items()}
    numbers = {key: round(counts[key], 1) for key, *_ in ROWS}
    if arguments.json:
        print(json.dumps(numbers, indent=2))
        return
    print(f"{'':40}{'now':>8}{'0.2.0':>8}{'budget':>8}")
    for key, label, before, budget in ROWS:
        print(f"{label:40}{numbers[key]:8,}{before:8,}{budget:8,}")


if __name__ == "__main__":
    main()
