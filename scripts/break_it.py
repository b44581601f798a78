"""Apply each one-line breakage of tests/breakages.txt to a copy of the repository and run the tests.

Every breakage must fail a test.

    python scripts/break_it.py                    # the fast tests, stopped at the first failure
    python scripts/break_it.py --only 3 17        # some breakages, by number

Outcomes are saved in runs/breakages.jsonl. The same command resumes, and runs missed breakages again. Delete
the file to run those again that were caught, after a change of the code. Exit code 1 if one is missed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "breakages.txt"
OUTCOMES = ROOT / "runs" / "breakages.jsonl"
COPY = ROOT / "runs" / "breakages"  # always the same, so that numba's cache in it stays valid
SOURCE = Path("src") / "latent_tokens"
IGNORED = ("--ignore", "tests/test_breakages.py")  # it looks for the text that a breakage replaces
NO_TESTS = 5  # the exit code of pytest if no test is selected
BY_HAND = "tests/test_by_hand.py"  # runs first: it takes seconds, and catches most
LONGEST = 900  # seconds, after which a test that does not end is stopped


def breakages():
    """(path, old text, new text) of each line of the list."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return [(path, *old_and_new(path, rest)) for path, rest in (line.split(" | ", 1) for line in lines)]


def old_and_new(path, rest):
    """Return the halves of "old | new". Each may contain " | ": old occurs once in the file."""
    parts, content = rest.split(" | "), (ROOT / SOURCE / path).read_text()
    pairs = [(" | ".join(parts[:i]), " | ".join(parts[i:])) for i in range(1, len(parts))]
    fitting = [(old, new) for old, new in pairs if content.count(old) == 1 and old != new]
    if not fitting:
        raise ValueError(f"{path} | {rest}: the text to replace must occur exactly once in {SOURCE / path}")
    return min(fitting, key=lambda pair: abs(len(pair[0]) - len(pair[1])))


def copy_repository():
    """Copy the repository to COPY, without the files that git ignores."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(
        ROOT, COPY, ignore=shutil.ignore_patterns(".git", ".venv", "runs", "site", ".*_cache", ".hypothesis")
    )
    (COPY / ".venv").symlink_to((ROOT / ".venv").resolve())


def outcome(path, old, new):
    """Return whether the fast tests fail in the copy with this breakage, and the first that fails.

    After test_by_hand, the files that name the broken module run first: they are most likely to fail.
    """
    broken, original = COPY / SOURCE / path, ROOT / SOURCE / path
    broken.write_text(original.read_text().replace(old, new))
    begun = time.perf_counter()
    failed = failing([BY_HAND]) or failing(files_about(path)) or failing([])
    shutil.copy2(original, broken)
    seconds = round(time.perf_counter() - begun)
    return {"path": path, "new": new, "caught": failed is not None, "by": failed, "seconds": seconds}


def files_about(path):
    """Return the test files that import the module of a path in src/latent_tokens, or run its JavaScript."""
    if path.endswith(".js"):
        return [str(COPY / "tests" / "test_engine.py")]
    module = ".".join(("latent_tokens", *Path(path).with_suffix("").parts))
    tests = sorted((COPY / "tests").glob("test_*.py"))
    return [str(test) for test in tests if re.search(rf"\b{re.escape(module)}\b", test.read_text())]


def failing(files):
    """Return the first fast test that fails, or None. Every file is tested if none is named."""
    processes = "0" if files else "2"
    options = ["-x", "-n", processes, "--dist", "loadfile", *IGNORED, "-m", "not slow"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=COPY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(COPY / "src")},
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {LONGEST} s"
    if done.returncode in (0, NO_TESTS):
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0] if lines else f"exit code {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, nargs="+", help="numbers of breakages, from 0")
    arguments = parser.parse_args()
    listed = breakages()
    copy_repository()
    lines = OUTCOMES.read_text().splitlines() if OUTCOMES.is_file() else []
    caught = {(row["path"], row["new"]) for row in map(json.loads, lines) if row["caught"]}
    numbers = arguments.only or range(len(listed))
    num_missed = 0
    for number in numbers:
        path, old, new = listed[number]
        if (path, new) in caught:
            continue
        row = outcome(path, old, new)
        num_missed += not row["caught"]
        with OUTCOMES.open("a") as file:
            file.write(json.dumps(row) + "\n")
        verdict = f"caught by {row['by']}" if row["caught"] else "MISSED"
        print(f"{number}: {path}: {new}: {verdict}, {row['seconds']} s", flush=True)
    print(f"{len(numbers) - num_missed} of {len(numbers)} breakages are caught")
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
