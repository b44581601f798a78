"""The installed package is the built one: the wheel works in a fresh environment without the checkout."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile

import pytest

from helpers.documentation import ROOT
from latent_tokens.checkpoints.files import bundled_names

pytestmark = pytest.mark.slow
PUZZLE = "1.....3............2................"
MEGABYTE = 10**6
ROUNDS = 5


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel that hatchling builds from the checkout."""
    source, out = tmp_path_factory.mktemp("source") / "checkout", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out), cwd=source)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """Return a fresh environment with the wheel and the libraries of this one, without the checkout."""
    place = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(place, with_pip=False)
    if shutil.which("uv"):
        installer = [
            "uv",
            "pip",
            "install",
            "--offline",
            "--quiet",
            "--python",
            str(place / "bin" / "python"),
        ]
    else:
        installer = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--python",
            str(place / "bin" / "python"),
            "install",
            "--quiet",
        ]
    done(*installer, "--no-deps", str(wheel), cwd=place)
    own = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own / "beside.pth").write_text("\n".join([sysconfig.get_path("purelib"), *libraries()]))
    return place


def libraries():
    """Return the paths of the libraries of this environment, without the checkout."""
    return sorted({path for path in sys.path if path.endswith("site-packages")})


def done(*command, cwd):
    """Return the output of a command, which must succeed, with the path of the wheel only."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-1_000:]}\n{ended.stderr[-2_000:]}"
    return ended.stdout


def test_the_wheel_holds_what_it_must_and_no_more(wheel):
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
        about = content.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert wheel.stat().st_size < 30 * MEGABYTE
    assert "latent_tokens/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "latent_tokens/bundled/results.jsonl" in names
    for name in bundled_names():
        assert {
            f"latent_tokens/bundled/{name}/{file}"
            for file in ("config.json", "model.safetensors", "README.md")
        } <= names
    package = ROOT / "src" / "latent_tokens"
    files = {
        str(file.relative_to(ROOT / "src"))
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files == {name for name in names if ".dist-info/" not in name}  # also the files of the page
    for minor in (11, 12, 13):
        assert f"Programming Language :: Python :: 3.{minor}" in about


def test_wheel_solves_a_puzzle_in_an_empty_directory(fresh, tmp_path):
    place = done(
        fresh / "bin" / "python", "-c", "import latent_tokens; print(latent_tokens.__file__)", cwd=tmp_path
    )
    assert place.startswith(str(fresh))
    said = done(fresh / "bin" / "latent-tokens", "solve", PUZZLE, "--attempts", "20", cwd=tmp_path)
    assert "\nsolved" in said
    assert "by sudoku-6-scdm" in said
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_finds_it_well(fresh, tmp_path):
    found = [
        json.loads(line)
        for line in done(fresh / "bin" / "latent-tokens", "doctor", "--json", cwd=tmp_path).splitlines()
    ]
    (own,) = [finding for finding in found if finding["about"] == "latent-tokens"]
    assert (
        own["found"] == f"{tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']} in "
        f"{next(fresh.glob('lib/*/*/latent_tokens'))}"
    )


TIMED = """
import sys, time
sys.path.insert(0, sys.argv[1])
begun = time.perf_counter()
import latent_tokens
alone = time.perf_counter()
import torch
loaded = time.perf_counter()
from latent_tokens import generate
print(alone - begun, loaded - alone, time.perf_counter() - loaded)
"""


def test_import_is_quick_and_the_core_adds_little_to_torch():
    rounds = [
        map(float, done(sys.executable, "-c", TIMED, str(ROOT / "src"), cwd=ROOT).split())
        for _ in range(ROUNDS)
    ]
    alone, torch, core = map(statistics.median, zip(*rounds, strict=True))
    print(
        f"import latent_tokens {alone:.3f} s; import torch {torch:.2f} s; then from latent_tokens import "
        f"generate {core:.3f} s"
    )
    assert alone < 0.2
    assert core < 0.5
