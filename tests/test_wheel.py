"""The installation: dependencies, imports on first use, a wheel without the checkout, and the doctor."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile

import pytest
import torch
from packaging.requirements import Requirement

from helpers.documentation import ROOT
from latent_tokens.commands import COMMANDS
from latent_tokens.commands.doctor import requirement_finding, self_test
from latent_tokens.network import fast

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Print the help, then make the libraries of the extras unavailable and import the demo.
HELP_AND_DEMO = """
import socket, sys
def refuse(*arguments): raise SystemExit("reached for the network")
socket.socket.connect = socket.getaddrinfo = refuse
import latent_tokens
from latent_tokens.cli import main
main(["--help"])
assert not {"torch", "numpy", "transformers", "matplotlib", "lm_eval"} & {*sys.modules}
sys.modules |= dict.fromkeys(EXTRAS)
from latent_tokens import demo
from latent_tokens.commands.page import run_demo
"""


def name_of(requirement):
    """Return the name of a library as it is imported."""
    return re.match(r"[\w-]+", requirement)[0].replace("-", "_")


def test_dependencies_are_bounded_and_listed():
    used = [*PROJECT["dependencies"], *EXTRAS["text"], *EXTRAS["lm-eval"], *EXTRAS["lora"]]
    assert all(re.fullmatch(r"[a-z_]+>=[0-9.]+,<[0-9.]+", requirement) for requirement in used)
    table = (ROOT / "docs" / "install.md").read_text().partition("| library |")[2]
    assert re.findall(r"^\| ([a-z_]+)\b", table, re.M) == list(map(name_of, used))


def test_help_needs_no_heavy_library_and_the_demo_no_extra():
    extras = {name_of(requirement) for extra in EXTRAS.values() for requirement in extra} - {"latent_tokens"}
    assert {"transformers", "peft", "pytest"} <= extras
    script = f"EXTRAS = {sorted(extras)}\n{HELP_AND_DEMO}"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    assert all(f" {command} " in printed.stdout for command in COMMANDS)


@pytest.mark.parametrize(("target", "has_extras"), [("demo", False), ("test", True)])
def test_make_installs_extras_for_the_tests_only(tmp_path, target, has_extras):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    dry_run = ["make", "-n", target]
    lines = subprocess.run(dry_run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert ("[dev]" in lines, "-e . -c constraints.txt" in lines) == (has_extras, not has_extras)


def done(*command, cwd):
    """Return the output of a command, which must succeed, with the path of the wheel only."""
    environment = {name: os.environ[name] for name in os.environ.keys() - {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment["OMP_NUM_THREADS"] = "1"
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-1_000:]}\n{ended.stderr[-2_000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel that hatchling builds from the source archive of the checkout, as pip and uv do."""
    source, out = tmp_path_factory.mktemp("source") / "checkout", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    (source / "scripts").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "scripts/wheel_metadata.py"):
        shutil.copy(ROOT / name, source / name)
    done(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(out), cwd=source)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(out, filter="data")
    (unpacked,) = (path for path in out.iterdir() if path.is_dir())
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out), cwd=unpacked)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """Return a fresh environment with the wheel and the libraries of this one, without the checkout."""
    folder = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    if shutil.which("uv"):
        installer = shlex.split(f"uv pip install --offline --quiet --python {python}")
    else:
        pip = f"-m pip --disable-pip-version-check --python {python} install --quiet"
        installer = [sys.executable, *shlex.split(pip)]
    done(*installer, "--no-deps", str(wheel), cwd=folder)
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    libraries = sorted({path for path in sys.path if path.endswith("site-packages")})
    (own / "beside.pth").write_text("\n".join([sysconfig.get_path("purelib"), *libraries]))
    return folder / "bin"


@pytest.mark.slow
def test_wheel_has_the_files_of_the_package_and_no_more(wheel):
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    assert wheel.stat().st_size < 30_000_000
    assert "latent_tokens/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    files = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src" / "latent_tokens").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files == {name for name in names if ".dist-info/" not in name}  # also models and the page


@pytest.mark.slow
def test_wheel_solves_a_puzzle_in_an_empty_directory(fresh, tmp_path):
    puzzle = "1.....3............2................"
    said = done(fresh / "latent-tokens", "solve", puzzle, "--attempts", "20", cwd=tmp_path)
    assert "\nsolved" in said
    assert "by sudoku-6-scdm" in said
    module = done(fresh / "python", "-c", "import latent_tokens; print(latent_tokens.__file__)", cwd=tmp_path)
    assert module.startswith(str(fresh.parent))


@pytest.mark.slow
def test_doctor_finds_no_problem_in_the_wheel(fresh, tmp_path):
    printed = done(fresh / "latent-tokens", "doctor", "--json", cwd=tmp_path).splitlines()
    findings = {finding["about"]: finding for finding in map(json.loads, printed)}
    assert findings["latent-tokens"]["found"].startswith(f"{PROJECT['version']} at ")
    models = [path.name for path in (ROOT / "src/latent_tokens/bundled").iterdir() if path.is_dir()]
    assert {findings[f"model {name}"]["verdict"] for name in models} == {"ok"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wheel_writes_a_page_without_node(fresh, tmp_path):
    tools = tmp_path / "tools"  # the only directory on the path: node is not in it
    tools.mkdir()
    done("env", f"PATH={tools}", fresh / "latent-tokens", "page", cwd=tmp_path)
    assert 2_000_000 < (tmp_path / "latent-tokens.html").stat().st_size <= 3_200_000


# The doctor names each deliberate fault with its fix.

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, *others):
        if name.partition(".")[0] == {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Absent())
from latent_tokens.cli import main
sys.exit(main(["doctor", "--json"]))
"""


def doctor_without(absent, folder, **environment):
    """Return the exit code and the findings of a process in which a library cannot be imported."""
    command = [sys.executable, "-c", WITHOUT.format(absent=absent)]
    settings = {"cwd": folder, "env": os.environ | environment, "capture_output": True, "text": True}
    ended = subprocess.run(command, **settings, check=False)
    assert all(line.endswith(" ...") for line in ended.stderr.splitlines())  # what is being checked
    findings = map(json.loads, ended.stdout.splitlines())
    return ended.returncode, {finding["about"]: finding for finding in findings}


@pytest.mark.parametrize(
    ("requirement", "found"),
    [
        ("no-such-library>=2", "not installed"),
        ("torch<1.0", f"{torch.__version__}, and <1.0 is needed"),
    ],
)
def test_library_that_is_missing_or_too_old_is_a_problem(requirement, found):
    finding = requirement_finding(Requirement(requirement))
    assert finding[1:] == ("problem", found, f"pip install '{requirement}'")


def test_broken_library_is_named_and_the_doctor_goes_through(tmp_path):
    code, findings = doctor_without("torch", tmp_path)
    assert code == 1
    assert "torch" in findings["self-test"]["found"]


def test_a_sampler_that_is_wrong_is_seen(monkeypatch):
    """The fake sampler never draws token 0, so its samples are wrong."""
    real = fast.generate

    def sharp(*arguments, seed):
        made = real(*arguments, seed=seed)
        return type(made)(
            made.tokens.where(made.tokens > 0, 1), made.order, made.tokens_processed, made.passes
        )

    monkeypatch.setattr(fast, "generate", sharp)
    finding = next(finding for finding in self_test() if finding.about == "model sudoku-6-scdm")
    assert finding.verdict == "problem"


@pytest.mark.slow
def test_damaged_models_of_a_copied_package_are_named(tmp_path):
    """One is truncated, one is changed, and one is complete."""
    left_out = shutil.ignore_patterns("__pycache__", "sudoku-9-*", "sudoku-6-sidm", "sudoku-6-ar-mtp")
    package = shutil.copytree(ROOT / "src/latent_tokens", tmp_path / "latent_tokens", ignore=left_out)
    truncated, changed = (package / f"bundled/sudoku-6-{name}/model.safetensors" for name in ("arm", "mdm"))
    truncated.write_bytes(truncated.read_bytes()[:-1000])
    content = changed.read_bytes()
    changed.write_bytes(content[:-20_000] + content[-40_000:-20_000])
    code, findings = doctor_without("nothing", tmp_path, PYTHONPATH=str(tmp_path))
    assert code == 1
    problems = {about for about, finding in findings.items() if finding["verdict"] == "problem"}
    assert problems == {"model sudoku-6-arm", "model sudoku-6-mdm"}
    assert findings["torch"]["found"] == torch.__version__
    assert findings["model sudoku-6-scdm"]["verdict"] == "ok"
    assert "corrupt" in findings["model sudoku-6-arm"]["found"]
    assert "its logits differ" in findings["model sudoku-6-mdm"]["found"]
    assert "pip install --force-reinstall" in findings["model sudoku-6-mdm"]["hint"]
