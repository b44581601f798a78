"""latent-tokens doctor."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latent_tokens.doctor import Finding

STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class Doctor:
    """Say whether the installation is well, and what to do where it is not. Takes seconds; exit code 1 where there is a problem."""

    json: bool = False
    """Print a line of JSON each instead of a table."""


def run_doctor(command: Doctor) -> int:
    """latent-tokens doctor: a table for a terminal, plain lines elsewhere, or JSON lines; 1 where there is a problem."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    findings, table = [], Table("", "what", "found")
    for finding in examine(Path.cwd()):
        findings.append(finding)
        words = f"{finding.found}\n-> {finding.way_out}" if finding.way_out else finding.found
        table.add_row(Text(finding.verdict, STYLES[finding.verdict]), Text(finding.about), Text(words))
        if command.json:
            print(json.dumps(asdict(finding)), flush=True)
        elif not sys.stdout.isatty():
            print(f"{finding.verdict:8}{finding.about}: {words.replace(chr(10), ' ')}", flush=True)
    if sys.stdout.isatty() and not command.json:
        Console().print(table)
    problems = sum(finding.verdict == "problem" for finding in findings)
    if not command.json:
        print(f"{problems} problem{'' if problems == 1 else 's'}" if problems else "all is well")
    return 1 if problems else 0


def examine(folder: Path) -> Iterator[Finding]:
    """Every finding, one after the other: of the installation and the folder, and, where the libraries can be imported, of the self-test."""
    from latent_tokens import doctor
    from latent_tokens.checks import first_line

    yield from doctor.examine(folder)
    try:
        from latent_tokens import selftest
    except Exception as error:  # of a library that is missing or broken: anything
        yield doctor.Finding(
            "self-test", "problem", f"cannot begin ({first_line(error)})", "mend what is named above, or install latent-tokens again"
        )
        return
    yield from selftest.examine()
