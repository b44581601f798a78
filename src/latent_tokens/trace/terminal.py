"""Text as it is decoded, in any order: known, decoded, latent and open tokens told apart by colour, redrawn at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from rich.console import Console
from rich.live import Live
from rich.text import Text as Styled
from torch import Tensor

from latent_tokens.checks import printable
from latent_tokens.core.decoding import Step
from latent_tokens.tasks import Text

STYLES = {
    "known": "bold",
    "decoded": "green",
    "new": "black on green",
    "latent": "yellow",
    "candidate": "black on yellow",
    "open": "dim",
}
SIGNS = {
    "open": "\N{MIDDLE DOT}",
    "latent": "\N{WHITE SQUARE}",
    "candidate": "\N{WHITE SQUARE}",
}  # of what has no text yet
PART, BROKEN = (
    "\N{DOTTED CIRCLE}",
    "\N{REPLACEMENT CHARACTER}",
)  # a part of a character whose others are not there, drawn and decoded
TOGETHER = 8  # tokens at most that make whole characters together: four hold one, more hold parts of several
A_SECOND = 12  # pictures


@contextmanager
def watching(
    task: Text, tokens: Tensor, known: Tensor, lengths: Tensor, console: Console | None = None
) -> Iterator[Callable[[Step], None]]:
    """Gives what `generate` takes as `on_step`, for a batch of one. On what is no terminal nothing is drawn but the last picture."""
    ids, kinds = tokens[0].tolist(), ["known" if given else "open" for given in known[0].tolist()]
    length = int(lengths[0])

    def picture() -> Styled:
        drawn = Styled()
        for kind, style in STYLES.items():
            drawn.append(kind, style)
            drawn.append("  ")
        drawn.append("\n\n")
        for sign, run in groupby(zip(ids[:length], kinds, strict=False), lambda one: SIGNS.get(one[1])):
            shown, of = zip(*run, strict=True)
            for place, count, text in (
                whole_characters(task, shown)
                if sign is None
                else ((place, 1, sign) for place in range(len(shown)))
            ):
                latest = min(of[place : place + count], key=("new", "decoded", "known", *SIGNS).index)
                drawn.append(text, STYLES[latest])
        return drawn

    with Live(
        picture(), console=console or Console(stderr=True), refresh_per_second=A_SECOND, transient=False
    ) as live:

        def on_step(step: Step) -> None:
            for place, kind in enumerate(kinds):
                kinds[place] = {"new": "decoded", "latent": "open", "candidate": "open"}.get(kind, kind)
            for kind, places in (("latent", step.latents[0]), ("candidate", step.candidates[0])):
                for place in places:
                    kinds[place] = kind
            for place, token in zip(step.chosen[0].tolist(), step.tokens[0].tolist(), strict=True):
                if place >= 0:
                    ids[place], kinds[place] = token, "new"
            live.update(picture())

        yield on_step
        for place, kind in enumerate(kinds):
            kinds[place] = "decoded" if kind == "new" else kind
        live.update(picture())


def whole_characters(task: Text, ids: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """(place, number, text) of adjacent tokens, no more together than whole characters take; PART stands for what is none. Fit for a terminal."""
    place = 0
    while place < len(ids):
        texts = [task.inside(ids[place : place + 1])]
        while BROKEN in texts[-1] and len(texts) < min(TOGETHER, len(ids) - place):
            texts.append(task.inside(ids[place : place + len(texts) + 1]))
        count = 1 if BROKEN in texts[-1] else len(texts)
        yield place, count, printable(texts[count - 1].replace(BROKEN, PART), also="\n\t")
        place += count
