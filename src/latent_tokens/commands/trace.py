"""latent-tokens trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from latent_tokens.commands.shared import task_of
from latent_tokens.commands.solve import puzzle_text
from latent_tokens.configs import OrderName


@dataclass(frozen=True)
class Trace:
    """Keep a decode to watch: a page that needs no server, an animation, or a picture of a few moments. Settings are as in solve."""

    run: Positional[str]
    """A run folder, or the name of a model that comes along."""
    puzzle: Positional[str]
    """As for solve: its cells, numbers and target, or clue tokens; or a file."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """The page to write, one .html file of at most 2 MB."""
    gif: Path | None = None
    """The animation to write."""
    png: Path | None = None
    """The picture to write."""
    compare: str | None = None
    """A second decode beside it: with so many latents (a number, or all), or by another model (a run folder or name)."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: as many as the method can use."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next cells the most confident is decoded (k). Default: all, with --latents 8, 1 where the order is not adaptive."""
    order: OrderName | None = None
    """top_prob, margin and entropy are adaptive. Default: top_prob, or left_to_right where the method is."""
    temperature: float = 0.0
    """0 takes the likeliest token."""
    seed: int = 0
    """The decode draws from the stream (seed, 0), as the first attempt of solve."""
    replace: bool = False
    """Write over files that are there."""


def run_trace(command: Trace) -> int:
    """latent-tokens trace: writes the files, prints the verdict and what was written."""
    from latent_tokens.frames import trace
    from latent_tokens.storage import write_whole
    from latent_tokens.strips import animation, strip
    from latent_tokens.web.page import page_with

    outputs = [path for path in (command.out, command.gif, command.png) if path is not None]
    check_outputs(outputs, command.replace)
    for path, ending in ((command.out, ".html"), (command.gif, ".gif"), (command.png, ".png")):
        if path is not None and path.suffix.lower() != ending:
            raise ValueError(f"{path}: must end with {ending}, as what is written there")
    traces = [trace(asked) for asked in decodes_of(command)]
    kinds: tuple[tuple[Path | None, Callable[[], bytes]], ...] = (
        (command.out, lambda: page_with(traces).encode()),
        (command.gif, lambda: animation(traces)),
        (command.png, lambda: strip(traces)),
    )
    write_whole({path: made() for path, made in kinds if path is not None})
    for one in traces:
        start, end = one["start"], one["end"]
        verdict = "solved" if end["right"] else f"not solved ({len(end['wrong'])} faults)"
        cost = f"{end['processed']:,} tokens, {end['processed'] / start['all_processed']:.2f} of all"
        print(f"{start['model']}, latents {start['settings']['latents']}: {verdict}; {cost}")
    print(*outputs, sep="\n")
    return 0


def check_outputs(outputs: list[Path], replace: bool) -> None:
    """Raises ValueError where nothing is to be written, or where something stands."""
    if not outputs:
        raise ValueError("trace: nothing to write; name a page (-o trace.html), an animation (--gif) or a picture (--png)")
    for path in outputs:
        if outputs.count(path) > 1:
            raise ValueError(f"{path}: named for two files; name another")
        if path.is_dir() or (path.exists() and not replace):
            raise ValueError(f"{path}: exists; name another file, or add --replace")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{path}: its folder is not there; make it first")


def decodes_of(command: Trace) -> list[Any]:
    """What is to be decoded: the one asked for, and the one to compare it with."""
    from latent_tokens.frames import Asked, Model, Setting
    from latent_tokens.pretrained import find, from_pretrained

    def asked(run: str, latents: int | Literal["all"] | None) -> Asked:
        model = Model(run, from_pretrained(run), task_of(find(run)))
        setting = Setting(latents, command.candidates, command.order, command.temperature, command.seed)
        return Asked(model, model.task.encode(puzzle_text(command.puzzle)), setting)

    first = asked(command.run, command.latents)
    if command.compare is None:
        return [first]
    if command.compare == "all" or command.compare.isdecimal():
        return [first, asked(command.run, "all" if command.compare == "all" else int(command.compare))]
    return [first, asked(command.compare, None)]
