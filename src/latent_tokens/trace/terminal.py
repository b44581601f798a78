"""Text in the terminal while it is decoded: given, decoded, latent and masked tokens in colors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from rich.console import Console
from rich.live import Live
from rich.text import Text as Styled
from torch import Tensor

from latent_tokens.checks import printable
from latent_tokens.core.generated import Step
from latent_tokens.tasks import Text

TERMINAL_STYLES = {
    "known": "bold",
    "decoded": "green",
    "new": "black on green",
    "latent": "yellow",
    "candidate": "black on yellow",
    "open": "dim",
}
MASKED_CHARACTERS = {
    "open": "\N{MIDDLE DOT}",
    "latent": "\N{WHITE SQUARE}",
    "candidate": "\N{WHITE SQUARE}",
}
# Of the kinds of one character's tokens
PRECEDENCE = ("new", "decoded", "known", *MASKED_CHARACTERS)
PART = "\N{DOTTED CIRCLE}"  # drawn for a part of a character whose other parts are masked
BROKEN = "\N{REPLACEMENT CHARACTER}"  # decoded from such a part
MAX_TOKENS = 8  # per run of whole characters: four hold one, more hold parts of several
REFRESHES = 12  # per second


@contextmanager
def watching(
    task: Text, tokens: Tensor, known: Tensor, lengths: Tensor
) -> Iterator[Callable[[Step], None]]:
    """Yield the `on_step` of `generate` for a batch of one. Without a terminal, draw only the end."""
    length = int(lengths[0])
    ids = tokens[0].tolist()
    kinds = ["known" if given else "open" for given in known[0].tolist()]

    def drawing() -> Styled:
        return styled_text(task, ids[:length], kinds[:length])

    output = Console(stderr=True)
    with Live(drawing(), console=output, refresh_per_second=REFRESHES) as live:

        def on_step(step: Step) -> None:
            # The kinds of the last step are over. A decoded token may be masked again.
            clean = set(step.clean[0])
            for position, kind in enumerate(kinds):
                if kind != "known":
                    kinds[position] = "decoded" if position in clean else "open"

            # The input and the decoded tokens of this step.
            for position in step.latents[0]:
                kinds[position] = "latent"
            for position in step.candidates[0]:
                kinds[position] = "candidate"
            for position, token in zip(
                step.chosen[0].tolist(), step.tokens[0].tolist(), strict=True
            ):
                if position >= 0:
                    ids[position] = token
                    kinds[position] = "new"
            live.update(drawing())

        yield on_step
        for position, kind in enumerate(kinds):
            kinds[position] = "decoded" if kind == "new" else kind
        live.update(drawing())


def styled_text(task: Text, ids: Sequence[int], kinds: Sequence[str]) -> Styled:
    """Return the legend and the text, each character in the style of its most recent token."""
    styled = Styled()
    for kind, style in TERMINAL_STYLES.items():
        styled.append(kind, style)
        styled.append("  ")
    styled.append("\n\n")
    for character, run in groupby(
        zip(ids, kinds, strict=True), lambda pair: MASKED_CHARACTERS.get(pair[1])
    ):
        run_ids, run_kinds = zip(*run, strict=True)
        if character is not None:
            for kind in run_kinds:
                styled.append(character, TERMINAL_STYLES[kind])
            continue
        for start, count, text in whole_characters(task, run_ids):
            latest = min(run_kinds[start : start + count], key=PRECEDENCE.index)
            styled.append(text, TERMINAL_STYLES[latest])
    return styled


def whole_characters(task: Text, ids: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Yield (start, number of tokens, text) of the shortest runs of whole characters.

    PART replaces an incomplete one.

    The text is safe to print in a terminal.
    """
    start = 0
    while start < len(ids):
        texts = [task.inside(ids[start : start + 1])]
        while BROKEN in texts[-1] and len(texts) < min(MAX_TOKENS, len(ids) - start):
            texts.append(task.inside(ids[start : start + len(texts) + 1]))
        count = 1 if BROKEN in texts[-1] else len(texts)
        yield start, count, printable(texts[count - 1].replace(BROKEN, PART), also="\n\t")
        start += count
