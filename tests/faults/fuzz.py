"""make fuzz: every reader must refuse bad input in one line, quickly and in little memory, unexecuted.

    python -m faults.fuzz                               more than 2,000 inputs for each reader: minutes
    python -m faults.fuzz --list                        the readers, their seeds, changes and hostile inputs
    python -m faults.fuzz --replay FILE --reader NAME   one input again

Exit code 1 on a finding.
"""

import argparse
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from faults.archives import CHANGES, TEXT_CHANGES
from faults.commands import COMMANDS, placed
from faults.corruptions import BYTE_CHANGES, JSON_CHANGES
from faults.readers import BY_NAME, READERS
from faults.seeds import Fixtures, in_memory, tiny_networks, unpacked
from faults.workers import run_all

OUT = Path("runs/fuzz")


def drill(readers=READERS, count=100, seed=0, processes=1, out=OUT, tell=lambda text: None, only=None):
    """Return a result per reader of `count` inputs times its share, or of the input `only`. Save findings."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    folder = Path(mkdtemp(prefix="fuzz-", dir=in_memory()))
    try:
        with tiny_networks():
            fixtures = Fixtures(folder / "fixtures")
            placed(" ".join(COMMANDS).split(), folder, fixtures)
            jobs = [
                (r, r.seeds(fixtures), fixtures, int(count * r.share), seed, out.absolute(), only)
                for r in readers
            ]
            longest_first = sorted(jobs, key=lambda job: -job[3])
            results = {result.reader: result for result in run_all(longest_first, processes, tell)}
        return [results[reader.name] for reader in readers]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replay(file, name, out=OUT):
    """Return the result of a reader on one input that was saved."""
    return drill([BY_NAME[name]], 1, out=out, only=unpacked(file))[0]


def table(results):
    """Return the results as a table."""
    row = "{:<18}{:>8}{:>22}{:>10}{:>9}{:>12}{:>9}{:>7}".format
    heads = ("reader", "inputs", "past the first check", "accepted", "refused", "slowest ms", "peak MB")
    lines = [row(*heads, "found")]
    totals = Counter()
    for name, counts, found in results:
        totals.update(counts, found=len(found))
        share = f"{counts['past'] / max(1, counts['tried']):.0%}"
        tried, *rest = (f"{counts[n]:,.0f}" for n in ("tried", "accepted", "refused", "slowest", "peak"))
        lines.append(row(name, tried, share, *rest, len(found)))
    tried, accepted, refused = (f"{totals[name]:,.0f}" for name in ("tried", "accepted", "refused"))
    outcome = f"{accepted} accepted, {refused} refused in one line, {totals['found']} found"
    return "\n".join([*lines, f"{tried} inputs: {outcome}"])


def findings(results):
    """Return the findings, each with the file of its smallest input."""
    return "\n".join(
        f"\n{result.reader}: {problem} ({about['times']}x)\n  {about['said'].strip()[-600:]}\n  "
        f"{about['file']} ({about['size']:,} bytes)"
        for result in results
        for problem, about in result.found.items()
    )


def listing():
    """Return the readers with their seeds and hostile inputs, and the changes of each kind of file."""
    lines = []
    folder = Path(mkdtemp(prefix="fuzz-", dir=in_memory()))
    with tiny_networks():
        fixtures = Fixtures(folder / "fixtures")
        for reader in READERS:
            seeds = reader.seeds(fixtures)
            lines.append(f"{reader.name}: {len(seeds)} seeds, {reader.share:g} times the inputs")
            lines += [f"{reader.name}: hostile, {name}" for name, _ in reader.hostile(seeds)]
    shutil.rmtree(folder)
    for suffix, changes in {**CHANGES, "other": TEXT_CHANGES}.items():
        lines.append(f".{suffix}: {', '.join(dict.fromkeys(change.__name__ for change in changes))}")
    return "\n".join([*lines, f"bytes: {', '.join(BYTE_CHANGES)}", f"JSON: {', '.join(JSON_CHANGES)}"])


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "--inputs", type=int, default=2_100, help="for a reader; quick ones take twice as many"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same inputs")
    parser.add_argument("--reader", action="append", choices=BY_NAME, help="only this one; may be repeated")
    parser.add_argument("--replay", type=Path, help="a file that was kept; name its --reader")
    parser.add_argument(
        "--processes", type=int, default=min(2, os.cpu_count() or 1), help="readers at a time"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where inputs with findings are kept")
    parser.add_argument("--list", action="store_true", help="print the readers and their inputs")
    asked = parser.parse_args()
    if asked.replay is not None and len(asked.reader or ()) != 1:
        parser.error("--replay: name the --reader of the file")
    if asked.list:
        print(listing())
        return 0
    start = time.perf_counter()
    if asked.replay is not None:
        results = [replay(asked.replay, asked.reader[0], asked.out)]
    else:
        readers = [BY_NAME[name] for name in asked.reader] if asked.reader else READERS
        report = lambda text: print(text, flush=True)  # noqa: E731
        results = drill(readers, asked.inputs, asked.seed, asked.processes, asked.out, report)
    seconds = time.perf_counter() - start
    print(findings(results), table(results), f"in {seconds:.0f} s, seed {asked.seed}", sep="\n")
    return 1 if any(result.found for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
