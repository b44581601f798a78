"""Text as it is decoded, in any order: known, decoded, latent and open tokens told apart by colour, redrawn at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text as Styled
from torch import Tensor

from latent_tokens.decoding import Step
from latent_tokens.tasks import Text

STYLES = {"known": "bold", "decoded": "green", "new": "black on green", "latent": "yellow", "candidate": "black on yellow", "open": "dim"}
OPEN, LATENT = "\N{MIDDLE DOT}", "\N{WHITE SQUARE}"
A_SECOND = 12  # pictures


@contextmanager
def watching(task: Text, tokens: Tensor, known: Tensor, lengths: Tensor, console: Console | None = None) -> Iterator[Callable[[Step], None]]:
    """Gives what `generate` takes as `on_step`, for a batch of one. On what is no terminal nothing is drawn but the last picture."""
    ids, kinds = tokens[0].tolist(), ["known" if given else "open" for given in known[0].tolist()]
    length = int(lengths[0])

    def picture() -> Styled:
        drawn = Styled()
        for kind, style in STYLES.items():
            drawn.append(kind, style)
            drawn.append("  ")
        drawn.append("\n\n")
        for token, kind in zip(ids[:length], kinds, strict=False):
            text = {"open": OPEN, "latent": LATENT, "candidate": LATENT}.get(kind)
            drawn.append(task.decode_one(token) if text is None else text, STYLES[kind])
        return drawn

    with Live(picture(), console=console or Console(stderr=True), refresh_per_second=A_SECOND, transient=False) as live:

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
