"""latent-tokens trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from latent_tokens.commands.shared import (
    Command,
    Output,
    OwnCode,
    RunName,
    check_outputs,
    latents_in_words,
)
from latent_tokens.commands.solve import puzzle_text
from latent_tokens.configs import DrawConfig, InputConfig, SamplingConfig

if TYPE_CHECKING:
    from latent_tokens.trace.record import DecodeRequest


@dataclass(frozen=True, kw_only=True)
class Trace(Command, DrawConfig, InputConfig, OwnCode):
    """Record one decode as an HTML page or a picture. The defaults are those of solve.

    Examples:
        latent-tokens trace sudoku-6-scdm 1.....3............2................ -o trace.html
        latent-tokens trace sudoku-6-scdm 1.....3............2................ --png trace.png
    """

    run: RunName
    """Model that decodes. A run directory, a bundled model, or a name on the Hugging Face Hub."""
    puzzle: Annotated[str, arg(metavar="PUZZLE")]
    """Puzzle as for solve: cells, numbers and target, clue tokens, or a file with one. For text, a prompt."""
    out: Output = None
    """HTML page to write. A Sudoku model of at most 4 MB goes into it, and its slider changes n."""
    png: Path | None = None
    """Picture to write."""
    compare: Annotated[str | None, arg(metavar="N|all|RUN")] = None
    """Second decode next to the first. A number of latent tokens, all, or another model."""
    replace: bool = False
    """Overwrite files that exist."""


def run_trace(command: Trace) -> int:
    """Run `latent-tokens trace`. Write the files, and print the verdicts and the paths."""
    from latent_tokens.page.document import page_with
    from latent_tokens.storage import write_atomic
    from latent_tokens.trace.drawing import strip
    from latent_tokens.trace.record import trace, verdict_of

    # Check the names of the files.
    outputs = {".html": command.out, ".png": command.png}
    if command.out is None and command.png is None:
        raise ValueError(
            "nothing to write: name a page (-o trace.html) or a picture (--png trace.png)"
        )
    check_outputs(outputs, command.replace)

    # Decode, and write the files.
    decodes = decodes_of(command)
    traces = [trace(request) for request in decodes]
    files = {}
    if command.out is not None:
        files[command.out] = page_with(traces, "", [request.model for request in decodes]).encode()
    if command.png is not None:
        files[command.png] = strip(traces)
    write_atomic(files)

    # Print the verdicts and the costs.
    for events in traces:
        start = events["start"]
        end = events["end"]
        verdict = verdict_of(events)
        share = end["processed"] / start["all_processed"]
        cost = f"{end['processed']:,} tokens processed, {share:.2f}x of all"
        settings = start["settings"]
        is_off = settings.get("off_distribution", False)
        number = latents_in_words(settings["latents"], settings["candidates"], is_off)
        print(f"{start['model']}: {verdict}, {cost}, {number}")
    print(*files, sep="\n")
    return 0


def decodes_of(command: Trace) -> list[DecodeRequest]:
    """Return the decode, and the one to compare it with."""
    from latent_tokens.trace.record import DecodeRequest, LoadedModel

    sampling, compare = command.config(SamplingConfig), command.compare
    runs, latents = [command.run], [sampling.latents]
    if compare is not None and (compare == "all" or compare.isdecimal()):
        runs.append(command.run)
        latents.append("all" if compare == "all" else int(compare))
    elif compare is not None:
        runs.append(compare)
        latents.append(None)
    return [
        DecodeRequest(
            LoadedModel(run, net, task),
            task.encode(puzzle_text(command.puzzle)),
            replace(sampling, latents=number),
        )
        for run, number, (_, net, task) in zip(runs, latents, command.models(*runs), strict=True)
    ]
