"""The files of a Space: its header has the required entries, and its command exists."""

import json
import re
import subprocess
import tomllib

import yaml

from helpers.documentation import ROOT
from latent_tokens.cli import parse
from latent_tokens.commands import RUN


def test_the_head_of_the_space_is_what_spaces_want():
    head = yaml.safe_load((ROOT / "space/README.md").read_text().split("---\n")[1])
    docker = (ROOT / "space/Dockerfile").read_text()
    assert (head["sdk"], head["license"]) == ("docker", "apache-2.0")
    assert len(head["short_description"]) <= 60
    assert f"EXPOSE {head['app_port']}\n" in docker
    assert f'"--port", "{head["app_port"]}"' in docker


def test_the_space_starts_a_command_that_there_is():
    (command,) = re.findall(r"^CMD (\[.*\])$", (ROOT / "space/Dockerfile").read_text(), re.M)
    name, *arguments = json.loads(command)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert name in project["scripts"]
    asked = parse(arguments)
    assert type(asked) in RUN
    assert (asked.host, asked.port) == ("0.0.0.0", 7860)
    (extra,) = re.findall(r"'\.\[(\w+)\]'", (ROOT / "space/Dockerfile").read_text())
    assert extra in project["optional-dependencies"]


def test_make_space_writes_what_the_docker_file_copies(tmp_path):
    subprocess.run(["make", "space", f"OUT={tmp_path / 'space'}"], cwd=ROOT, check=True, capture_output=True)
    docker = (tmp_path / "space/Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*) \S+$", docker, re.M):
        for place in line.split():
            assert (tmp_path / "space" / place).exists(), place
    assert list((tmp_path / "space/src").rglob("model.safetensors"))
    assert not list((tmp_path / "space").rglob("__pycache__"))
