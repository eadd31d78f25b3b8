"""The distributions, tried as a user installs them: built, and installed into a clean environment.

The environment holds the wheel and the packages that its metadata requires without an extra, in the
locked versions: they are copied from the environment of this test, so that nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from penstock.cli.missing_package import SERVER_MODULES, message_and_hint
from tests.checkout import TOP

EXAMPLES = "penstock/cli/examples"
PROGRAM = """
import penstock
from penstock.testing import Kit
from shop import app

kit = Kit(app)
kit.call.Item.create("i1", price=3, stock=10)
assert kit.call.Item("i1").add(5) == "Item: i1 stock updated to: 15"
print(penstock.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and from its content the wheel."""
    folder = tmp_path_factory.mktemp("distributions")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target"]
    subprocess.run([*build, "sdist"], cwd=TOP, check=True, capture_output=True)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / source.name.removesuffix(".tar.gz")
    quick = {
        **os.environ,
        "CFLAGS": "-O0",
    }  # nothing here measures the speed of the compiled module
    subprocess.run([*build, "wheel"], cwd=unpacked, env=quick, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel without an extra, and pytest; return the folder of the programs."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    install = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]
    install += ["--no-index", "--no-deps", "--no-compile", "--quiet", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (installed,) = metadata.distributions(name="penstock", path=[str(site)])
    for package in required([*(installed.requires or ()), "pytest"], {}).values():
        for file in package.files or ():
            if ".." not in file.parts:
                place = site / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(package.locate_file(file), place)  # type: ignore[arg-type]
    return programs


def required(
    requirements: Iterable[str], found: dict[str, metadata.Distribution]
) -> dict[str, metadata.Distribution]:
    """Return the packages of requirements without an extra, with all that these require."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        package = metadata.distribution(requirement.name)
        if package.name not in found:
            found[package.name] = package
            required(package.requires or (), found)
    return found


def test_wheel_has_every_file(wheel: Path) -> None:
    """The wheel holds all of the package, with its pages and styles, and the examples."""
    with ZipFile(wheel) as archive:
        held = set(archive.namelist())
    for base, prefix in ((TOP / "src" / "penstock", "penstock"), (TOP / "examples", EXAMPLES)):
        files = [
            path for path in base.rglob("*") if path.is_file() and "__pycache__" not in path.parts
        ]
        assert files
        assert {f"{prefix}/{path.relative_to(base).as_posix()}" for path in files} <= held


def test_missing_modules_are_told_apart() -> None:
    """A plain installation lacks those of the extra; one that lacks another module, such as pydantic, is not complete."""
    wanted = map(Requirement, metadata.requires("penstock") or ())
    server = {
        each.name for each in wanted if each.marker and 'extra == "server"' in str(each.marker)
    }
    modules = {"pyjwt": "jwt", "prometheus-client": "prometheus_client"}
    assert {modules.get(name, name) for name in server} == SERVER_MODULES
    assert "penstock[server]" in message_and_hint("pyarrow.dataset")[1]
    assert "is not complete: it has no pydantic" in message_and_hint("pydantic")[0]


def test_plain_installation_is_enough_to_write_and_test_an_application(
    clean: Path, tmp_path: Path
) -> None:
    """Without an extra, a user writes an application, tests it, explains it, and can call another."""
    environment = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTHON", "PENSTOCK", "PYTEST"))
    }

    def run(*words: str, folder: Path = tmp_path, code: int = 0) -> str:
        done = subprocess.run(
            [clean / words[0], *words[1:]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "Exit codes" in run("penstock", "--help")
    told = run("penstock", "new", "kiosk")  # which names the extra before `penstock dev`
    assert "pip install 'penstock[server]' && cd kiosk && penstock dev" in told
    run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path / "kiosk")
    assert "entity Item" in run("penstock", "explain", folder=tmp_path / "kiosk")
    for example in ("bank", "shop", "talk"):
        run("penstock", "new", "--example", example)
        assert f"{example}: " in run("penstock", "explain", example)
    tests = run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "bank", "shop", "talk")
    assert "passed" in tests
    assert str(clean.parent) in run("python", "-c", PROGRAM)
    nowhere = ("--url", "http://127.0.0.1:9", "--timeout", "120")
    assert "[unreachable]" in run("penstock", "call", "Item", "i1", "add", "5", *nowhere, code=1)
    for command in ("run", "status", "replay"):
        assert "pip install 'penstock[server]'" in run("penstock", command, "shop", code=2)
