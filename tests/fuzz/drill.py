"""The drill as a whole, and its table."""

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

from fuzz.cases import Fixtures, in_memory, tiny_networks
from fuzz.readers import BY_NAME, COMMANDS, READERS, placed
from fuzz.workers import drilled, unpacked

OUT = Path("runs/fuzz")


def drill(readers=READERS, count=100, seed=0, processes=1, out=OUT, tell=lambda text: None, only=None):
    """Return a result per reader of `count` inputs times its share, or of the input `only`. Save findings."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    folder, jobs = Path(mkdtemp(prefix="fuzz-", dir=in_memory())), []
    try:
        with tiny_networks():
            fixtures = Fixtures(folder / "fixtures")
            placed(" ".join(COMMANDS).split(), folder, fixtures)
            for reader in readers:
                seeds = reader.seeds(fixtures)
                jobs.append((reader, seeds, fixtures, int(count * reader.share), seed, out.absolute(), only))
            results = {
                result.reader: result
                for result in drilled(sorted(jobs, key=lambda job: -job[3]), processes, tell)
            }
        return [results[reader.name] for reader in readers]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replay(file, name, out=OUT):
    """The result of a reader on one input that was saved."""
    return drill([BY_NAME[name]], 1, out=out, only=unpacked(file))[0]


def table(results):
    """Return the results as a table."""
    lines = [
        f"{'reader':<18}{'inputs':>8}{'past the first check':>22}{'accepted':>10}{'refused':>9}"
        f"{'slowest ms':>12}{'peak MB':>9}{'found':>7}"
    ]
    for result in results:
        about = result.counts
        share = about["past"] / max(1, about["tried"])
        lines.append(
            f"{result.reader:<18}{about['tried']:>8,.0f}{share:>22.0%}{about['accepted']:>10,.0f}{about['refused']:>9,.0f}"
            f"{about['slowest']:>12,.0f}{about['peak']:>9,.0f}{len(result.found):>7}"
        )
    tried, accepted, refused = (
        sum(result.counts[name] for result in results) for name in ("tried", "accepted", "refused")
    )
    found = sum(len(result.found) for result in results)
    return "\n".join(
        [
            *lines,
            f"{tried:,.0f} inputs: {accepted:,.0f} accepted, {refused:,.0f} refused in one line, "
            f"{found} found",
        ]
    )


def told(results):
    """What was found, each with the file that has the smallest input."""
    return "\n".join(
        f"\n{result.reader}: {what} ({about['times']}x)\n  {about['said'].strip()[-600:]}\n  "
        f"{about['file']} ({about['size']:,} bytes)"
        for result in results
        for what, about in result.found.items()
    )
