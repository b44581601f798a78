"""latent-tokens doctor."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latent_tokens.bench.doctor import Finding

STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class Doctor:
    """Check the installation and suggest fixes. Takes seconds. Exit code 1 if there is a problem."""

    json: bool = False
    """Print the findings as JSON lines instead of a table."""


def run_doctor(command: Doctor) -> int:
    """Run `latent-tokens doctor`. Return 1 if there is a problem.

    Print a table to a terminal and plain lines elsewhere. With --json, print JSON lines.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    findings = []
    table = Table("", "what", "found")
    for finding in examine(Path.cwd()):
        findings.append(finding)
        words = f"{finding.found}\n-> {finding.hint}" if finding.hint else finding.found
        table.add_row(Text(finding.verdict, STYLES[finding.verdict]), Text(finding.about), Text(words))
        if command.json:
            print(json.dumps(asdict(finding)), flush=True)
        elif not sys.stdout.isatty():
            print(f"{finding.verdict:8}{finding.about}: {words.replace(chr(10), ' ')}", flush=True)
    if sys.stdout.isatty() and not command.json:
        Console().print(table)
    problems = sum(finding.verdict == "problem" for finding in findings)
    if not command.json:
        print(f"{problems} problem{'' if problems == 1 else 's'}" if problems else "no problems found")
    return 1 if problems else 0


def examine(folder: Path) -> Iterator[Finding]:
    """Yield the findings on the installation and the directory, then those of the self-test."""
    from latent_tokens.bench import doctor
    from latent_tokens.checks import first_line

    yield from doctor.examine(folder)
    try:
        from latent_tokens.bench import selftest
    except Exception as error:  # a missing or broken library can raise anything
        yield doctor.Finding(
            "self-test",
            "problem",
            f"cannot start ({first_line(error)})",
            "fix the problems above, or reinstall latent-tokens",
        )
        return
    yield from selftest.examine()
