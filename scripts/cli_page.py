"""Write docs/cli.md, the reference of the command line, from the parsers: python scripts/cli_page.py."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from latent_tokens.cli import usage_of
from latent_tokens.commands import COMMANDS, DESCRIPTIONS, EXAMPLES
from latent_tokens.commands.options import Option, options_of

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEADER = """\
# Command line

Every command, its flags and two examples. `python scripts/cli_page.py` writes this page from the parsers.
`latent-tokens COMMAND --help` prints the same, and `latent-tokens --version` prints the version.

*required* marks an argument without a default, and `-` an option that is not set by default.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | `solve` has no valid answer, or `doctor` reports a problem |
| 2 | an error in the arguments or the files, printed as one line |
| 75 | training was stopped by a signal after it saved a checkpoint. Resume it |
| 130 | stopped with Ctrl-C |
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEADER, *map(section, COMMANDS)])


def section(name: str) -> str:
    """Return the section of one command: description, usage, options and examples."""
    options = options_of(COMMANDS[name])
    rows = [row_of(option) for option in options]
    table = ["| argument | default | meaning |", "|---|---|---|", *rows] if rows else ["It takes no options."]
    usage = (
        f"{usage_of(name)} [OPTIONS]" if any(not option.positional for option in options) else usage_of(name)
    )
    examples = [f"latent-tokens {example}" for example in EXAMPLES[name]]
    lines = [
        f"## {name}",
        "",
        f"{DESCRIPTIONS[name]}",
        "",
        f"    {usage}",
        "",
        *table,
        "",
        "```bash",
        *examples,
        "```",
        "",
    ]
    return "\n".join(lines)


def row_of(option: Option) -> str:
    """Return the table row of one option."""
    return f"| {spelled(option)} | {default_of(option)} | {linked(option.help)} |"


def spelled(option: Option) -> str:
    """Return the flags of an option, and its value."""
    if option.positional:
        return code(option.metavar)
    first, *others = option.flags
    if option.default is False:
        return code(first)  # its --no- form changes nothing
    valued = first if option.default is True else f"{first} {option.metavar}"
    return ", ".join(map(code, [valued, *others]))


def default_of(option: Option) -> str:
    """Return the default of an option as it is typed, or in words if it is computed."""
    if option.default_in_words is not None:
        return linked(option.default_in_words)
    if option.positional and not isinstance(option.default, (str, tuple)):
        return "*required*"
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    if option.default in (None, ()):
        return "-"
    values = option.default if isinstance(option.default, tuple) else (option.default,)
    return code(shlex.join(map(str, values)))


def code(text: str) -> str:
    """Return a text in code font, for a cell of a table."""
    return f"`{text}`".replace("|", "\\|")


def linked(text: str) -> str:
    """Return a help text as Markdown, with a link for each page and decision that it names."""
    text = text.replace("|", "\\|").replace("<", "&lt;")
    text = re.sub(r"docs/decisions\.md, (D-\d+, [\w\s-]+)", link, text)
    return re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", text)


def link(match: re.Match[str]) -> str:
    """Return the link to a decision: [D-8, noised positions](decisions.md#d-8-noised-positions)."""
    anchor = match[1].lower().replace(",", "").replace(" ", "-")
    return f"[{match[1]}](decisions.md#{anchor})"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
