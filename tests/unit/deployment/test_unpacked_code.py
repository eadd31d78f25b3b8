"""The code of a deployment is imported from the folder of its archive, in place of the version before it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.deployment.archives import Archives, file_of, pack
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.loading import load, locate, set_of
from penstock.deployment.side_modules import load_instead
from penstock.errors import ConfigError, Corrupt
from penstock.model.control import DeployedCode

APP = """
from penstock import App, Entity, key
from swapped_shop.rule import VALUE

class Item(Entity):
    name: str = key()
    price: int = VALUE

app = App("swapped", Item)
"""


RATES = "from swapped_rates import R as VALUE"


@pytest.fixture(autouse=True)
def kept_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the modules that a test imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def deployed(data: Path, value: str) -> DeployedCode:
    """Store a version of a package without `__init__.py`."""
    return store(
        data, {"swapped_shop/services.py": APP, "swapped_shop/rule.py": f"VALUE = {value}\n"}
    )


def store(data: Path, files: dict[str, str]) -> DeployedCode:
    archive = pack({path: text.encode() for path, text in files.items()})
    return DeployedCode(Archives(data).put(archive), "swapped_shop.services", "app", "", {})


@pytest.mark.parametrize("folder", ["data", "a=b,c", "50% of it", "x//y:z"])
def test_text_of_a_location_leads_back_to_it(tmp_path: Path, folder: str) -> None:
    """The text names the module of a package without `__init__.py` as the deployment names it, in any folder."""
    data = tmp_path / folder
    data.mkdir(parents=True)
    location = unpacked(data, deployed(data, "1"))
    assert locate(location.spec) == location
    both = set_of("both", [location, location])
    assert locate(both.spec) == both
    assert location.module == "swapped_shop.services"


def test_a_version_takes_the_place_of_the_former(tmp_path: Path) -> None:
    """Imports find the modules of the newer version, and the former application stays usable."""
    first, second = (unpacked(tmp_path, deployed(tmp_path, value)) for value in ("1", "2"))
    former = load(first)
    app = load_instead(second, first)
    assert app is not former
    assert sys.modules["swapped_shop.rule"].VALUE == 2
    assert first.folder not in sys.path
    assert set(former.entities) == {"Item"}


def test_a_module_that_is_gone_hides_no_other(tmp_path: Path) -> None:
    """The newer version imports an installed module of the name that a module of the former version had."""
    first, second = (
        unpacked(tmp_path, store(tmp_path, files))
        for files in (
            {
                "swapped_shop/services.py": APP,
                "swapped_shop/rule.py": RATES,
                "swapped_rates.py": "R = 1",
            },
            {"swapped_shop/services.py": APP, "swapped_shop/rule.py": RATES},
        )
    )
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "swapped_rates.py").write_text("R = 2")
    sys.path.append(str(installed))
    load(first)
    assert sys.modules["swapped_shop.rule"].VALUE == 1
    load_instead(second, first)
    assert sys.modules["swapped_shop.rule"].VALUE == 2


def test_a_version_that_cannot_be_imported_changes_nothing(tmp_path: Path) -> None:
    """The modules and the import path of the former version stay."""
    first, second = (unpacked(tmp_path, deployed(tmp_path, value)) for value in ("1", "1 / 0"))
    load(first)
    path = list(sys.path)
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        load_instead(second, first)
    assert sys.modules["swapped_shop.rule"].VALUE == 1
    assert sys.path == path


def test_a_changed_folder_is_written_again(tmp_path: Path) -> None:
    """A file that was edited, removed or added in the unpacked folder is as the archive has it at the next use."""
    code = deployed(tmp_path, "1")
    folder = Path(unpacked(tmp_path, code).folder)
    (folder / "swapped_shop/rule.py").write_text("VALUE = 9\n")
    (folder / "added.py").write_text("")
    unpacked(tmp_path, code)
    assert (folder / "swapped_shop/rule.py").read_text() == "VALUE = 1\n"
    assert not (folder / "added.py").exists()
    assert [path.name for path in folder.parent.iterdir()] == [code.archive]


def test_a_damaged_archive_is_not_unpacked(tmp_path: Path) -> None:
    """The error says what to do, and no folder appears."""
    code = deployed(tmp_path, "1")
    (tmp_path / file_of(code.archive)).write_bytes(b"")
    with pytest.raises(Corrupt, match="put the file back from a backup"):
        unpacked(tmp_path, code)
    assert not (tmp_path / "run").exists()
