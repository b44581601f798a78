"""Checks of an installation: versions, extras, free disk space.

It imports none of the libraries it checks.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal, get_args

from packaging.requirements import Requirement

from latent_tokens.configs import TrackerName
from latent_tokens.storage import package_version, source_commit

GIGABYTE = 10**9
RECOMMENDED = 5 * GIGABYTE  # free disk space: the paper's data sets
REQUIRED = GIGABYTE // 2  # free disk space: a run with its checkpoints

Verdict = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of a check: its subject, its verdict, what was found, and a hint if it is not ok."""

    about: str
    verdict: Verdict
    found: str
    hint: str = ""


def examine(folder: Path) -> Iterator[Finding]:
    """Yield the findings about versions, extras, the disk, and the directory for output files."""
    yield from versions()
    yield from extras()
    yield disk(folder)
    yield writing(folder)


def versions() -> Iterator[Finding]:
    """Yield the versions of Python, of this package and of each required library."""
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    commit = source_commit()
    version_text = f"{package_version()} at {commit}" if commit else package_version()
    yield Finding("latent-tokens", "ok", f"{version_text} in {Path(__file__).parents[1]}")
    try:
        requirements = requirements_of("")
    except PackageNotFoundError:
        yield Finding(
            "installation",
            "note",
            "runs from a checkout that is not installed",
            "run pip install -e . to check its requirements",
        )
        return
    for requirement in requirements:
        yield installed(requirement)


def requirements_of(extra: str) -> list[Requirement]:
    """Return the requirements of an extra alone, or of the package if `extra` is empty."""
    requirements = [Requirement(text) for text in distribution("latent-tokens").requires or []]
    if not extra:
        return [
            requirement
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
    ]


def installed(requirement: Requirement) -> Finding:
    """Return whether a library is installed in a supported version."""
    name = requirement.name
    hint = f"pip install '{name}{requirement.specifier}'"
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Finding(name, "problem", "not installed", hint)
    if not requirement.specifier.contains(installed, prereleases=True):
        return Finding(name, "problem", f"{installed}, and {requirement.specifier} is needed", hint)
    return Finding(name, "ok", installed)


def extras() -> Iterator[Finding]:
    """Yield the state of each extra, and of the trackers of training."""
    try:
        names = distribution("latent-tokens").metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return
    for extra in names:
        if extra != "dev":
            yield extra_finding(extra)
    trackers = [name for name in get_args(TrackerName) if find_spec(name) is not None]
    if trackers:
        yield Finding("trackers", "ok", ", ".join(trackers))
    else:
        yield Finding("trackers", "note", "none", "pip install tensorboard, for train --track")


def extra_finding(extra: str) -> Finding:
    """Return whether the libraries of an extra are installed."""
    findings = [installed(requirement) for requirement in requirements_of(extra)]
    missing = [f"{finding.about} ({finding.found})" for finding in findings if finding.verdict != "ok"]
    if missing:
        hint = f"in a clone: pip install -e '.[{extra}]'"
        return Finding(f"extra {extra}", "note", f"missing: {', '.join(missing)}", hint)
    return Finding(f"extra {extra}", "ok", ", ".join(finding.about for finding in findings))


def disk(folder: Path) -> Finding:
    """Return the free space on the disk of a directory."""
    free = shutil.disk_usage(folder).free
    text = f"{free / GIGABYTE:,.1f} GB free"
    hint = "free some space, or choose another disk with --out"
    if free < REQUIRED:
        needed = f"a run with its checkpoints takes {REQUIRED / GIGABYTE:.1f}"
        return Finding("disk", "problem", f"{text}, {needed}", hint)
    if free < RECOMMENDED:
        needed = f"the paper's data sets take {RECOMMENDED / GIGABYTE:.0f}"
        return Finding("disk", "note", f"{text}, {needed}", hint)
    return Finding("disk", "ok", text)


def writing(folder: Path) -> Finding:
    """Return whether a directory is writable."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(b"latent-tokens")
    except OSError as error:
        text = f"{folder} cannot be written ({error.strerror})"
        return Finding("folder", "problem", text, "change to another directory, or choose one with --out")
    return Finding("folder", "ok", f"{folder} can be written")
