"""Dependencies have bounds, are listed with their licenses, and are imported on first use only."""

import io
import re
import subprocess
import sys
import tomllib

import pytest
from rich.console import Console
from rich.progress import Progress

from helpers.documentation import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = [
    *PROJECT["dependencies"],
    *PROJECT["optional-dependencies"]["text"],
    *PROJECT["optional-dependencies"]["lm-eval"],
    *PROJECT["optional-dependencies"]["lora"],
]


def test_every_dependency_is_bounded_and_listed():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    listed = re.findall(r"^\| ([a-z_]+)(?: \(extra `(?:text|lm-eval|lora)`\))? \|", page, re.M)
    assert listed[1:] == [re.match(r"[a-z_]+", one)[0] for one in OURS]
    for one in OURS:
        assert re.fullmatch(r"[a-z_]+>=[0-9.]+,<[0-9.]+", one), one
    assert len(PROJECT["dependencies"]) < 15


def test_every_extra_that_is_named_exists():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *(ROOT / "src").rglob("*.py")]
    named = {
        extra
        for path in pages
        for listed in re.findall(r"-e ['\"]\.\[([a-z,-]+)\]", path.read_text())
        for extra in listed.split(",")
    }
    assert {"text", "lm-eval"} <= named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("module", ["latent_tokens", "latent_tokens.cli"])
def test_import_needs_neither_torch_nor_a_network(module):
    script = f"""
import socket, sys
def refuse(*arguments): raise SystemExit("reached for the network")
socket.socket.connect = socket.getaddrinfo = refuse
import {module}
heavy = ("torch", "transformers", "matplotlib", "accelerate", "lm_eval")
sys.exit(any(name in sys.modules for name in heavy))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_progress_bars_are_drawn_within_each_other():
    """A data set is made while the bars of a queue are drawn. Before rich 14.1 that raised LiveError."""
    console = Console(file=io.StringIO(), force_terminal=True)
    with Progress(console=console) as models, Progress(console=console) as examples:
        models.add_task("models", total=2)
        examples.add_task("examples", total=2)
    assert "models" in console.file.getvalue()
    assert "examples" in console.file.getvalue()
