"""make fuzz: the bad-input drill. Exit 1 on a finding. `--replay FILE --reader NAME` repeats one input."""

import argparse
import os
import sys
import time
from pathlib import Path

from fuzz.drill import OUT, drill, replay, table, told
from fuzz.readers import BY_NAME, READERS


def main():
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument(
        "--inputs",
        type=int,
        default=2_100,
        help="for a reader, of which hypothesis gives up a few; those that are quick take twice as many",
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same inputs")
    parser.add_argument(
        "--reader", action="append", choices=BY_NAME, help="only this one; may be named several times"
    )
    parser.add_argument("--replay", type=Path, help="a file that was kept; name its --reader")
    parser.add_argument(
        "--processes", type=int, default=min(2, os.cpu_count() or 1), help="readers at a time"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help="where inputs are kept that something was found with"
    )
    asked = parser.parse_args()
    if asked.replay is not None and len(asked.reader or ()) != 1:
        parser.error("--replay: name the --reader of the file")
    begun = time.perf_counter()
    if asked.replay is not None:
        results = [replay(asked.replay, asked.reader[0], asked.out)]
    else:
        readers = [BY_NAME[name] for name in asked.reader] if asked.reader else READERS
        results = drill(
            readers,
            asked.inputs,
            asked.seed,
            asked.processes,
            asked.out,
            lambda text: print(text, flush=True),
        )
    print(
        told(results), table(results), f"in {time.perf_counter() - begun:.0f} s, seed {asked.seed}", sep="\n"
    )
    return 1 if any(result.found for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
