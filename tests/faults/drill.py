"""make drill: interrupt a small training run many times, resume it, and compare the final bytes.

    python -m faults.drill            about 280 faults: minutes
    python -m faults.drill --short    a few of each kind, for the test suite
    python -m faults.drill --list     the faults

Exit code 1 if a result differs. Processes are forked from one that has imported torch and has one thread.
"""

import argparse
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
import torch._dynamo
from rich.console import Console
from rich.table import Table

from faults import other_faults as other, run_faults as run
from faults.children import SAVE_EVERY, Drill
from latent_tokens.cli import main
from latent_tokens.storage import provenance

CONSOLE = Console(width=150 if not sys.stdout.isatty() else None, highlight=False)


class Group(NamedTuple):
    """Faults of one function, and how often each case is injected in a short and in a full drill."""

    name: str
    inject: object
    cases: tuple
    short: int
    full: int


GROUPS = (
    Group("killed", run.kill_again_and_again, ("killed",), 12, 200),
    Group("disk full", other.fill_the_disk, ("files end",), 3, 9),
    Group("tmpfs full", other.fill_a_tmpfs, ("tmpfs",), 1, 4),
    Group("signals", run.signal_one, tuple(number.name for number in run.SIGNALS), 1, 4),
    Group("damaged", run.damage_what_was_saved, (*run.STATES, *run.FILES), 1, 4),
    Group("clock", run.set_the_clock_back, ("set back",), 1, 4),
    Group("data", run.damage_the_data, ("before", "running"), 1, 4),
    Group("two processes", other.kill_one_of_two, ("one of two killed",), 1, 6),
    Group("signals to one of two", other.signal_one_of_two, ("any signal",), 1, 4),
    Group("torchrun", other.kill_one_under_torchrun, ("one of two killed",), 0, 2),
    Group("client", other.leave_a_decode_unread, ("reads nothing",), 1, 1),
    Group("download", other.cut_a_download, ("stops half-way",), 0, 1),
)


def summarize(drill, seconds):
    """Print the table and the totals."""
    table = Table("fault", "process", "step", "moment", "what followed", "steps lost")
    for fault in drill.faults:
        row = (fault.kind, fault.process, fault.step, fault.moment, fault.followed[:160], fault.lost)
        table.add_row(*map(str, row))
    CONSOLE.print(table, markup=False)
    kinds = Counter(fault.kind for fault in drill.faults)
    moments = Counter(fault.moment.split(":")[0] for fault in drill.faults if fault.kind == "killed")
    lost = [fault.lost for fault in drill.faults]
    num_faults, num_wrong = len(drill.faults), len(drill.wrong)
    survived = max(0, num_faults - num_wrong)
    CONSOLE.print(f"kinds: {', '.join(f'{kind} {number}' for kind, number in kinds.items())}")
    CONSOLE.print(f"killed while: {', '.join(f'{name} {number}' for name, number in moments.most_common())}")
    CONSOLE.print(f"faults injected {num_faults}, survived {survived}, in {seconds:.0f} s")
    CONSOLE.print(f"steps lost {sum(lost)}, at most {max(lost)} at once; saved every {SAVE_EVERY}")
    CONSOLE.print(f"wrong results {num_wrong}", style="red" if num_wrong else "green")


def run_drill(short, kills, seed, place):
    """Run the drill. Return 1 if a result was wrong."""
    CONSOLE.print(f"drill: seed {seed}, in {place}")
    start = time.perf_counter()
    provenance()  # asks git once, for all
    times = {group.name: group.short if short else group.full for group in GROUPS}
    times["killed"] = kills or times["killed"]
    drill = Drill(place, 15 if short else 60, seed)
    sizes = "--num-train 64 --num-validation 8 --num-test 1 --processes 1"
    drill.fork(place, partial(main, ["data", "sudoku-4", *sizes.split(), "--out", f"{drill.data}"])).end()
    drill.ended(drill.train(drill.undisturbed)[0], 0)
    taken = {size: run.save_seconds(drill, size) for size in (("nano",) if short else ("nano", "tiny"))}
    for group in GROUPS:
        before, group_start = len(drill.faults), time.perf_counter()
        group.inject(drill, group.cases * times[group.name])
        num_faults, seconds = len(drill.faults) - before, time.perf_counter() - group_start
        CONSOLE.print(f"{group.name}: {num_faults} faults, {seconds:.1f} s, {len(drill.wrong)} wrong so far")
    summarize(drill, time.perf_counter() - start)
    for size, seconds in taken.items():
        share = f"{seconds / 60:.2%} of the time at one a minute"
        CONSOLE.print(f"a save of {size} takes {seconds:.3f} s: {share}")
    return int(bool(drill.wrong))


def parse():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="drill", description=__doc__, formatter_class=formatter)
    parser.add_argument("--short", action="store_true", help="a handful of each kind")
    parser.add_argument("--list", action="store_true", help="print the faults and how often each is injected")
    parser.add_argument("--kills", type=int, help="how many processes to kill (200; 12 with --short)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the choices; the clock decides about kills, too"
    )
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    asked = parse()
    if asked.list:
        for group in GROUPS:
            for case in group.cases:
                print(f"{group.name}: {case}, {group.full} times, {group.short} in short")
        sys.exit(0)
    with TemporaryDirectory(prefix="drill-") as folder:
        sys.exit(run_drill(asked.short, asked.kills, asked.seed, Path(folder)))
