"""Write docs/cli.md, the list of commands, from their help: python scripts/cli_page.py."""

from __future__ import annotations

import os
import re
from contextlib import redirect_stdout
from inspect import cleandoc
from io import StringIO
from pathlib import Path

from latent_tokens.cli import main
from latent_tokens.commands import COMMANDS

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEADER = """\
# Command line

Every command with its flags and two examples. `python scripts/cli_page.py` writes this page from their help.
`latent-tokens COMMAND --help` explains the flags, and `latent-tokens --version` prints the version.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | `solve` has no valid answer, or `doctor` fails |
| 2 | an error in the arguments or the files |
| 75 | training was stopped by a signal after it saved a checkpoint. Resume it |
| 130 | stopped with Ctrl-C |
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEADER, *map(section, COMMANDS)])


def section(name: str) -> str:
    """Return the section of one command: description, usage, flags and examples."""
    text, _, examples = cleandoc(COMMANDS[name].__doc__ or "").partition("Examples:\n")
    shown = help_of(name)
    names = r"((?:\[?[A-Z]+(?: \.{3})?\]? ?)*)"
    positionals = re.findall(rf"\[-h\] (?:\[(?:\w+(?:-\w+)? )?OPTIONS\] ?)?{names}", shown)[0]
    flags = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]*(?= |\])", options_in(shown)))
    lines = [
        f"## {name}",
        "",
        "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")),
        "",
        f"    latent-tokens {name} {positionals}".rstrip() + " [OPTIONS]",
        "",
        f"Flags: {', '.join(f'`{flag}`' for flag in flags)}.",
        "",
        "```bash",
        *(line.strip() for line in examples.splitlines()),
        "```",
        "",
    ]
    return "\n".join(lines)


def explained(text: str) -> str:
    """Return the page with the meaning of each flag instead of the list of flags, for the built manual."""
    sections = re.split(r"(?m)^(?=## )", text)
    for index, part in enumerate(sections[1:], start=1):
        table = "".join(f"| `{flag}` | {meaning} |\n" for flag, meaning in meanings(part.split()[1]).items())
        sections[index] = re.sub(
            r"(?m)^Flags: .*\n", lambda _, rows=table: f"| option | meaning |\n|---|---|\n{rows}", part
        )
    return "".join(sections)


def meanings(name: str) -> dict[str, str]:
    """Return the meaning of each flag of a command, with its values and default, from its help."""
    found: dict[str, str] = {}
    flag = ""
    for line in help_of(name).splitlines():
        head, _, text = line.strip().partition("  ")
        if re.match(r" {1,4}--?[a-z]", line):
            flag = head.replace("|", r"\|")
            found[flag] = text.strip()
        elif flag and re.match(r" {10,}\S", line):
            found[flag] = f"{found[flag]} {line.strip()}".strip()
        elif not line.strip():
            flag = ""
    return {flag: text.replace("|", r"\|") for flag, text in found.items() if not flag.startswith("-h")}


def help_of(name: str) -> str:
    """Return what `latent-tokens NAME --help` prints, without frames."""
    os.environ["COLUMNS"] = "200"
    with redirect_stdout(StringIO()) as out:
        main([name, "--help"])
    return re.sub(r"[\u2500-\u257f]", "", out.getvalue())


def options_in(text: str) -> str:
    """Return the lines of a help that begin with a flag."""
    lines = [line.strip() for line in text.splitlines()]
    return "".join(f"{line.partition('  ')[0]} " for line in lines if re.match(r"-(?!h\b)", line))


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
