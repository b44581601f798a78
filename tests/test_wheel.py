"""The installed package is the built one: the wheel works in a fresh environment without the checkout."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile

import pytest

from helpers.documentation import ROOT

pytestmark = pytest.mark.slow
PUZZLE = "1.....3............2................"
MEGABYTE = 10**6


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
    python = str(place / "bin" / "python")
    if shutil.which("uv"):
        installer = shlex.split(f"uv pip install --offline --quiet --python {python}")
    else:
        pip = f"-m pip --disable-pip-version-check --python {python} install --quiet"
        installer = [sys.executable, *shlex.split(pip)]
    done(*installer, "--no-deps", str(wheel), cwd=place)
    own = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    libraries = sorted({path for path in sys.path if path.endswith("site-packages")})
    (own / "beside.pth").write_text("\n".join([sysconfig.get_path("purelib"), *libraries]))
    return place


def done(*command, cwd):
    """Return the output of a command, which must succeed, with the path of the wheel only."""
    environment = {name: os.environ[name] for name in os.environ.keys() - {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment["OMP_NUM_THREADS"] = "1"
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-1_000:]}\n{ended.stderr[-2_000:]}"
    return ended.stdout


def test_the_wheel_holds_what_it_must_and_no_more(wheel):
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
        about = content.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert wheel.stat().st_size < 30 * MEGABYTE
    assert "latent_tokens/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    package = ROOT / "src" / "latent_tokens"
    files = {
        str(file.relative_to(ROOT / "src"))
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files == {name for name in names if ".dist-info/" not in name}  # also models and the page
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


def test_wheel_writes_a_page_without_node(fresh, tmp_path):
    tools = tmp_path / "tools"  # the only directory on the path: node is not in it
    tools.mkdir()
    done("env", f"PATH={tools}", fresh / "bin" / "latent-tokens", "page", cwd=tmp_path)
    assert 2_000_000 < (tmp_path / "latent-tokens.html").stat().st_size <= 2_400_000


def test_doctor_finds_no_problem_in_the_wheel(fresh, tmp_path):
    printed = done(fresh / "bin" / "latent-tokens", "doctor", "--json", cwd=tmp_path).splitlines()
    (own,) = [found for found in map(json.loads, printed) if found["about"] == "latent-tokens"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert own["found"].startswith(f"{version} at ")
