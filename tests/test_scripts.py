"""The scripts that lint pages, count lines and list the files to read find what is planted."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from helpers.documentation import ROOT
from latent_tokens.address import OWNER, addresses

sys.path.append(str(ROOT / "scripts"))

import lint_docs
import set_owner
import size
import wheel_metadata

# In parts, since the script reads this file too.
D7, D8 = (f"D-{number}" for number in (7, 8))
ALONE = "See decision " + "7."
TITLES = {D7: "Optimizer settings"}
DECISION = f"See [{D7}, optimizer settings](decisions.md#d-7-optimizer-settings)."


def undocumented(count):
    """Return a number."""
    if count < 0:
        raise ValueError(f"count={count}: must be 0 or more")
    return [count]


def no_python(count):
    """Return a number.

    Args:
        count: a number.

    Returns:
        The number.

    Example:
        >>> f(1
    """


# A rule, its arguments, and the problems that it finds, in their order.
PLANTED = [
    (lint_docs.language, ("# Files\n\nA row a\nnumber ran beside x.",), "3: 'row a number'", "3: 'beside'"),
    (lint_docs.language, ("On this machine; it is fast.",), "1: 'this machine'", "1: ';'"),
    (lint_docs.language, ("a (Ye et al. 2025) " * 8,), "1: 40 words", "1: sentences of more than 25 words"),
    (lint_docs.language, ("A dial.\n\nA dial.",), "1: speaks of a dial twice"),
    (lint_docs.wide_lines, ("x" * 111,), "1: more than 110 columns"),
    (lint_docs.files_linked, ('[x](no.md) <img src="no.png">', ROOT), "1: no.md does not", "1: no.png does"),
    (lint_docs.files_linked, ("```{literalinclude} no.py", ROOT), "1: no.py does not exist"),
    (lint_docs.headings_linked, ("# Files\n[x](#file)", ROOT), "1: #file is not a heading"),
    (lint_docs.headings_linked, ("[x](README.md#no)", ROOT), "1: README.md#no is not a heading"),
    (lint_docs.decisions_named, (f"See {D7}, padding.", TITLES, False), f"1: {D7} without its title"),
    (lint_docs.decisions_named, (f"{D8}. {ALONE}", TITLES, False), f"1: {D8} without", "1: a decision"),
    (lint_docs.decisions_named, (f"{D7}, optimizer settings", TITLES, True), f"1: {D7}, Optimizer"),
    (lint_docs.reference, ("", ["Method"]), "1: lists Method 0 times"),
    (lint_docs.reference, (".. data:: Old", []), "1: lists Old, which is not public"),
    (lint_docs.promises, ("| It is safe | |", ROOT), "1: names no test"),
    (lint_docs.promises, ("| x | `tests/test_cli.py::test_no` |", ROOT), "1: tests/test_cli.py::test_no"),
    (lint_docs.answers, ("| x | `cli.py`: `no` |", ROOT), "1: no is not in cli.py"),
    (lint_docs.names_taught, ("```python\nlt.loss(lt.no)\n```", {"loss": "keep"}), "1: teaches no"),
    (lint_docs.errors_raised, ('raise ValueError(f"{x}: it says; b\\n")',), "1: 'says'", "1: a s", "1: a l"),
    (lint_docs.errors_raised, ('raise ValueError("cannot")',), "1: names no value"),
    (lint_docs.docstring_of, (undocumented,), "has no Example", "has no Args", "has no Raises"),
    (lint_docs.docstring_of, (no_python,), "its Example is not Python"),
    (lint_docs.names_repeated, ({"a.py": "x = y = 1", "b.py": "def y(): ..."}, ()), "a.py, b.py: define y"),
    # Nothing.
    (lint_docs.names_repeated, ({"a.py": "x = z\nfrom c import y", "b.py": "y: int = 1\nz = 2"}, ("z",))),
    (lint_docs.language, ("Train, it\nis `x; y`.\n| `stands` x; |\n\n```\nit says\n```\n\n    holds\n",)),
    (lint_docs.wide_lines, (f"[x]({'y' * 200})\n| {'x' * 200}",)),
    (lint_docs.files_linked, ("[x](README.md#a) [y](http://nowhere)", ROOT)),
    (lint_docs.headings_linked, ("# Some files\n[x](#some-files)", ROOT)),
    (lint_docs.decisions_named, (DECISION, TITLES, True)),
    (lint_docs.answers, ("| x | `cli.py`: `main`; `configs.py`: `TaskName` |", ROOT)),
    (lint_docs.errors_raised, ('raise ValueError(f"{x}: is one. Use 2.")',)),
    (lint_docs.docstring_of, (lint_docs.public()["generate"],)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "arguments", "problems"), [(*row[:2], row[2:]) for row in PLANTED])
def test_lint_finds_planted_mistakes_and_no_others(rule, arguments, problems):
    for problem, found in zip(problems, rule(*arguments), strict=True):
        assert found.startswith(problem)


CORE = '''"""Two lines
of a docstring."""
from latent_tokens import cli

# A comment.
def check_it(value):
    """Check it."""
    assert value

def late(value):
    try:
        cli.run(value)
    except KeyError:
        raise ValueError from None
    if value:
        raise ValueError
    elif value is None:
        raise TypeError
'''
FILES = {
    "src/latent_tokens/cli.py": "import latent_tokens.core\n" + "#" * 101,
    "src/latent_tokens/core.py": CORE,
    "scripts/one.py": "a = 1\n\n",
    "tests/helpers/two.py": "a = 1\n",
}
COUNTED = {
    "lines": 20, "files": 2, "code": 13, "docstrings": 100 * 3 / 20, "wide": 100 / 20, "module": 18,
    "function": 9, "small": 2, "guards": 100 * 6 / 13, "scripts": 2, "tests": 1, "cycles": 1,
}  # fmt: skip


def test_counts_of_a_repository_made_by_hand(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert size.count(tmp_path) == pytest.approx(COUNTED)
    assert {key for key, *_ in size.ROWS} == {*COUNTED, "training", "reference", "optimized", "cell"}


@pytest.mark.slow
def test_reading_paths_of_contributing_are_the_files_executed():
    command = [sys.executable, str(ROOT / "scripts" / "size.py"), "--files"]
    traced = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert size.files_to_read((ROOT / "CONTRIBUTING.md").read_text()) == traced


@pytest.mark.parametrize("name", ["ci", "docs", "release"])
def test_workflow_runs_targets_and_scripts_that_exist(name):
    folder = ROOT / ".github/workflows"
    jobs = yaml.safe_load((folder / f"{name}.yml").read_text())["jobs"]
    assert {job["needs"] for job in jobs.values() if "needs" in job} <= {*jobs}
    lines = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert {*re.findall(r"\bmake ([\w-]+)", lines)} <= {*targets}
    assert all((ROOT / file).exists() for file in re.findall(r"(?:scripts|tests)/\w+\.py", lines))
    assert all((folder / file).exists() for file in re.findall(r"gh workflow run (\S+)", lines))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return a clone in which an owner was set, and how it is set or checked there."""
    root = tmp_path_factory.mktemp("published")
    for path in [*set_owner.tracked(ROOT), ROOT / set_owner.ADDRESS]:
        target = root / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    subprocess.run("git init -q && git add .", shell=True, cwd=root, check=True)

    def run(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["set_owner.py", *arguments])
            return set_owner.main(root)

    assert run("one-1", "--check") == 1  # this repository has no owner, or another one
    assert run("one-1") == 0
    return root, run


def test_every_link_is_shown_after_one_command(published, capsys):
    root, run = published
    assert run("one-1", "--check") == 0
    readme = (root / "README.md").read_text()
    assert readme.count("https://one-1.github.io/latent-tokens/page/") == 3
    assert 'pip install "latent-tokens[text]"' in readme
    assert "PyPI. Install from a clone" not in readme
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    assert cited["url"] == "https://one-1.github.io/latent-tokens"
    (manual,) = yaml.safe_load((root / ".github/ISSUE_TEMPLATE/config.yml").read_text())["contact_links"]
    assert manual["url"] == cited["url"]
    first = json.loads((root / "examples/tour.ipynb").read_text())["cells"][0]
    assert f"{addresses('one-1')['colab']}/blob/main/examples/tour.ipynb" in "".join(first["source"])
    capsys.readouterr()
    (root / "docs/index.md").write_text("<!-- published: [x]({pages}) -->")
    assert run("one-1", "--check") == 1
    assert capsys.readouterr().out == "docs/index.md: has <!-- published\n"


def test_another_owner_replaces_the_first(published):
    root, run = published
    assert run("two") == 0
    assert run("one-1", "--check") == 1
    texts = [path.read_text() for path in set_owner.tracked(root)]
    assert not any("one-1" in text for text in texts)
    assert any(addresses("two")["repository"] in text for text in texts)


@pytest.mark.skipif(bool(OWNER), reason="the repository has an owner")
def test_links_are_hidden_until_an_owner_is_set():
    texts = {path: set_owner.HIDDEN.sub("", path.read_text()) for path in set_owner.tracked(ROOT)}
    parts = [f"{part}/latent-tokens" for part in ("github.com/[^/]+", "[^/]+[.]github[.]io")]
    assert [path for path, text in texts.items() if re.search("|".join(parts), text)] == []


def test_links_of_the_description_on_pypi_lead_to_files():
    page = set_owner.shown((ROOT / "README.md").read_text(), "one", OWNER)
    address = addresses("one")["repository"]
    page = wheel_metadata.with_absolute_links(page, address, "v1")
    targets = re.findall(r"\]\(([^)#]+)|src(?:set)?=\"([^\"]+)", page)
    assert all("".join(target).startswith("https://") for target in targets)
    files = re.findall(rf"{address}/(?:blob|raw)/v1/([^)#\"]+)", page)
    assert len(files) > 20
    assert [name for name in files if not (ROOT / name).exists()] == []
