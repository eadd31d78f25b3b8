"""The files that install Penstock are right: the wheel's lock, units of systemd, the image, and the Compose file.

`tests/test_installation.py` builds and installs the wheel itself.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from penstock.cli.commands import load
from tests.checkout import TOP
from tests.waiting import wait_for

DOCKERFILE: Final = TOP / "Dockerfile"
COMPOSE: Final = TOP / "deploy" / "compose.yaml"
UNITS: Final = sorted((TOP / "deploy" / "systemd").glob("*.service"))
PROJECT: Final[dict[str, Any]] = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
PROGRAMS: Final = Path(sys.executable).parent
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the checkers are for Linux")


def options_are_known(words: list[str]) -> bool:
    """Say whether `penstock` has a command with these options."""
    name, *rest = words
    options = {option for each in load(name).params for option in each.opts}
    return {word for word in rest if word.startswith("--")} <= options


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_units_are_valid(tmp_path: Path) -> None:
    """Systemd knows each line of the units, with the program and the folders of this machine in place of those of the page."""
    units = []
    for unit in UNITS:
        text = unit.read_text()
        for place, here in (("/opt/penstock/bin", PROGRAMS), ("/srv/penstock", tmp_path)):
            assert place in text
            text = text.replace(place, str(here))
        units.append(tmp_path / unit.name.replace("@.", "@shop."))
        units[-1].write_text(text.replace("User=penstock\n", "User=root\n"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda one: one.name)
def test_units_run_a_command(unit: Path) -> None:
    """The command and its options exist, and only the supervisor gets the first signal."""
    lines = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line)
    program, *words = shlex.split(lines["ExecStart"])
    assert program == "/opt/penstock/bin/penstock"
    assert options_are_known(words)
    assert (lines["KillMode"], lines["Restart"]) == ("mixed", "on-failure")
    assert "MemoryDenyWriteExecute" not in lines  # Java compiles at run time


@needs_linux
def test_compose_file_fits_the_specification() -> None:
    """Each field is known and has its type; a field with a mistyped name is an error, so the check finds mistakes."""
    from compose_spec import PyCompose  # noqa: PLC0415 -- only on Linux

    PyCompose.from_yaml(COMPOSE.read_text())
    with pytest.raises(ValueError, match="restrat"):
        PyCompose.from_yaml(COMPOSE.read_text().replace("restart:", "restrat:"))


def test_compose_file_names_what_exists() -> None:
    """Its command, its health check, its folders and its volume are those of the image and of the repository."""
    compose = yaml.safe_load(COMPOSE.read_text())
    app = compose["services"]["app"]
    assert options_are_known(app["command"])
    check, program, *words = app["healthcheck"]["test"]
    assert (check, program, options_are_known(words)) == ("CMD", "penstock", True)
    example, data = (volume.split(":") for volume in app["volumes"])
    assert (COMPOSE.parent / example[0] / "__init__.py").exists()
    assert example[1] in app["command"]
    assert f"VOLUME {data[1]}" in DOCKERFILE.read_text()
    assert (COMPOSE.parent / app["build"] / "Dockerfile").samefile(DOCKERFILE)


@needs_linux
def test_dockerfile_has_no_mistake() -> None:
    """The linter, which also reads the commands of the shell, has nothing to say."""
    done = subprocess.run(
        [PROGRAMS / "hadolint", "--no-color", DOCKERFILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_image_is_built_from_enough(tmp_path: Path) -> None:
    """The files that the Dockerfile copies, and that the builder gets, make a wheel; its constraints lock each package of it."""
    text = DOCKERFILE.read_text()
    sent = (TOP / ".dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            assert f"!{source}" in sent
            place = tmp_path / (source if target == "./" else target)
            if (TOP / source).is_dir():
                shutil.copytree(
                    TOP / source, place, ignore=shutil.ignore_patterns("*.so", "__pycache__")
                )
            else:
                shutil.copyfile(TOP / source, place)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    environment = {"PENSTOCK_NATIVE": "disable", "PATH": "/usr/bin:/bin"}
    subprocess.run(build, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert len(list((tmp_path / "dist").glob(f"penstock-{PROJECT['version']}-*.whl"))) == 1
    (stripped,) = re.findall(r"^RUN (sed .*) >\S+$", text, re.MULTILINE)
    lines = subprocess.run(
        shlex.split(stripped), cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    locked = {canonicalize_name(one.name) for one in map(Requirement, lines) if one.specifier}
    assert stripped in (TOP / "docs" / "INSTALL.md").read_text()
    (extras,) = re.findall(r"pip install '\.\[(.*)\]'", text)
    assert set(extras.split(",")) == PROJECT["optional-dependencies"].keys()
    wanted = PROJECT["dependencies"] + [
        line for extra in extras.split(",") for line in PROJECT["optional-dependencies"][extra]
    ]
    assert {canonicalize_name(Requirement(line).name) for line in wanted} <= locked


@pytest.mark.long
@pytest.mark.skipif(
    not shutil.which("docker")
    or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0,
    reason="needs an engine that builds images",
)
def test_image_runs() -> None:
    """The image runs compiled. With the options of the Compose file it serves the shop, whose volume has all of it after a kill."""
    image, name = "penstock-test", f"penstock-test-{os.getpid()}"
    docker("build", "--tag", image, TOP)
    told = docker("run", "--rm", "--read-only", "--tmpfs", "/tmp", image, "--version")
    assert told == f"penstock {PROJECT['version']}\ntransactions run compiled"
    app = yaml.safe_load(COMPOSE.read_text())["services"]["app"]
    options = ["--read-only", *(f"--tmpfs={place}" for place in app["tmpfs"])]
    options += [f"--cap-drop={one}" for one in app["cap_drop"]]
    options += [f"--security-opt={one}" for one in app["security_opt"]]
    options += [f"--env={key}={value}" for key, value in app["environment"].items()]
    example, data = (volume.split(":") for volume in app["volumes"])
    options += [f"--volume={COMPOSE.parent / example[0]}:{example[1]}:ro"]
    options += [f"--volume={name}:{data[1]}", f"--shm-size={app['shm_size']}"]
    place = f"{data[1]}/shop"
    try:
        added = docker(
            *("run", "--rm", *options, image),
            *("keys", "add", "web", "--scope", "*", "--data", place, example[1]),
        )
        docker(
            *("run", "--detach", "--name", name, "--publish", "127.0.0.1::8000", *options, image),
            *app["command"],
        )
        key = {"X-API-Key": added.splitlines()[-1]}
        assert called(name, key, "POST", "/call/Item/tea/create", {"price": 3, "stock": 8}) == "tea"
        docker("kill", name)
        docker("start", name)
        assert called(name, key, "GET", "/entities/Item/tea") == {
            "item_id": "tea",
            "price": 3,
            "stock": 8,
        }
        check = ["docker", "exec", name, *app["healthcheck"]["test"][1:]]
        wait_for(
            lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0,
            "the health check",
            deadline_s=180,
        )
    finally:
        docker("rm", "--force", name)
        docker("volume", "rm", "--force", name)


def docker(*words: str | Path) -> str:
    """Run a command of the engine that succeeds; return its output."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def called(name: str, key: dict[str, str], method: str, path: str, body: object = None) -> object:
    """Return the reply of the application in a container, as soon as it answers."""
    replies: list[httpx.Response] = []

    def answers() -> bool:
        address = docker("port", name, "8000/tcp").splitlines()[0]
        try:
            reply = httpx.request(
                method, f"http://{address}{path}", headers=key, json=body, timeout=60
            )
        except httpx.TransportError:
            return False
        replies.append(reply)
        return reply.status_code not in {503, 504}

    wait_for(answers, f"{name} answers", deadline_s=180)
    assert replies[-1].status_code == 200, replies[-1].text
    return replies[-1].json()


def test_page_names_the_files_and_extras() -> None:
    """Each file of `deploy`, and each extra, is on the page."""
    page = (TOP / "docs" / "INSTALL.md").read_text()
    files = [*UNITS, COMPOSE]
    assert [
        path.name for path in files if f"deploy/{path.relative_to(TOP / 'deploy')}" not in page
    ] == []
    assert [extra for extra in PROJECT["optional-dependencies"] if f"`{extra}`" not in page] == []
    assert f"penstock-{PROJECT['version']}-" in page


def test_changelog_has_the_version() -> None:
    """The newest version of the changelog is the project's, and no section is there twice."""
    changelog = (TOP / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(\d.*?)\]", changelog, re.MULTILINE)
    assert versions[0] == PROJECT["version"]
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE):
        sections = re.findall(r"^### (\w+)$", part, re.MULTILINE)
        assert len(sections) == len(set(sections))
        assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
