"""The source of an application: which files belong to its archive, and how they are read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.deployment import source
from penstock.deployment.archives import Archives, file_of, pack
from penstock.deployment.loading import locate
from penstock.deployment.source import code_of, read_source
from penstock.errors import ConfigError, Corrupt, OperationalError
from penstock.files.hashed_files import hash_of

Write = Callable[[dict[str, str]], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files below the working directory."""
    monkeypatch.chdir(tmp_path)

    def writer(files: dict[str, str]) -> None:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

    return writer


def files_of(spec: str) -> list[str]:
    return list(read_source(locate(spec)).files)


def test_a_module_brings_the_modules_that_it_imports_at_any_depth(write: Write) -> None:
    """Imports at the top, inside of functions, relative and by name are followed; other modules are left out."""
    write(
        {
            "kiosk.py": "import prices\n\ndef late():\n    from deep.inner import rules\n",
            "prices.py": "import json, msgspec\n",
            "deep/__init__.py": "",
            "deep/inner.py": "from . import rules as _, other\n",
            "deep/rules.py": "",
            "deep/other/__init__.py": "import importlib\nimportlib.import_module('plugin')\n",
            "plugin.py": "",
            "unrelated.py": "",
        }
    )
    found = read_source(locate("kiosk.py"))
    assert list(found.files) == [
        "deep/__init__.py",
        "deep/inner.py",
        "deep/other/__init__.py",
        "deep/rules.py",
        "kiosk.py",
        "plugin.py",
        "prices.py",
    ]
    assert found.libraries == {"msgspec"}


def test_a_package_brings_all_its_modules_but_its_tests(write: Write) -> None:
    """A package has all its modules; a module of a package has the packages around it."""
    names = [
        "__init__.py",
        "a.py",
        "plugins/__init__.py",
        "plugins/b.py",
        "test_a.py",
        "tests/c.py",
    ]
    write({f"shop/{name}": "" for name in names})
    write({"shop/__pycache__/a.py": "", "shop/no-module.py": "", "shop/notes.txt": ""})
    assert files_of("shop") == [
        *("shop/__init__.py", "shop/a.py", "shop/plugins/__init__.py", "shop/plugins/b.py"),
    ]
    assert files_of("shop.plugins.b:app") == [
        *("shop/__init__.py", "shop/plugins/__init__.py", "shop/plugins/b.py"),
    ]


def test_a_data_file_belongs_to_the_source_if_a_module_names_it(write: Write) -> None:
    """Hidden files, files outside and files that no string names are left out."""
    write(
        {
            "shop/__init__.py": "NAMES = 'prices.json', 'sub/rules.toml', '.env', '../key.pem', '/etc/os.txt'",
            "shop/prices.json": "{}",
            "shop/sub/rules.toml": "",
            "shop/.env": "PASSWORD=1",
            "shop/other.json": "{}",
            "key.pem": "",
        }
    )
    found = files_of("shop")
    assert "shop/prices.json" in found
    assert "shop/sub/rules.toml" in found
    assert not {"shop/.env", "shop/other.json"} & set(found)


def test_a_large_data_file_is_not_part_of_the_source(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file above the limit is left out."""
    monkeypatch.setattr(source, "DATA_FILE_BYTES_MAX", 10)
    write({"kiosk.py": "NAME = 'large.csv'", "large.csv": "1234567890 and more"})
    assert files_of("kiosk.py") == ["kiosk.py"]


def test_a_source_that_is_too_large_is_refused_by_name(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the largest file."""
    monkeypatch.setattr(source, "SOURCE_BYTES_MAX", 20)
    write({"kiosk.py": "import large", "large.py": "#" * 40})
    with pytest.raises(ConfigError, match=r"its largest file is large\.py; move files"):
        files_of("kiosk.py")


@pytest.mark.parametrize("name", ["queue", "email"])
def test_a_module_named_like_one_of_python_is_refused_by_name(write: Write, name: str) -> None:
    """The application itself, and a module that it imports; one that it does not import may lie there."""
    write(
        {
            "kiosk.py": "import time\nfrom shop import calendar\n",
            f"{name}.py": "",
            "shop/calendar.py": "",
        }
    )
    assert files_of("kiosk.py") == ["kiosk.py", "shop/calendar.py"]
    with pytest.raises(ConfigError, match=rf"{name}\.py has the name of a module of Python"):
        read_source(locate(f"{name}.py"))
    write({"kiosk.py": f"def late():\n    import {name}\n"})
    with pytest.raises(ConfigError, match="rename the file, or put it into a package"):
        read_source(locate("kiosk.py"))


def test_symbolic_links_are_followed_to_files_and_cycles_are_not(write: Write) -> None:
    """A linked module is packed with its content; a linked package is not searched."""
    write({"shop/__init__.py": "from . import linked", "elsewhere/real.py": "VALUE = 1\n"})
    Path("shop/linked.py").symlink_to(Path("elsewhere/real.py").resolve())
    Path("shop/cycle").symlink_to(Path("shop").resolve())
    Path("shop/dangling.py").symlink_to("nowhere.py")
    found = read_source(locate("shop")).files
    assert found == {"shop/__init__.py": b"from . import linked", "shop/linked.py": b"VALUE = 1\n"}


def test_a_file_that_cannot_be_read_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the file, the reason and the remedy."""
    write({"kiosk.py": "import hidden", "hidden.py": ""})
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "hidden.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"hidden\.py, which is part .*: Permission denied; make"):
        files_of("kiosk.py")


def test_a_file_that_changes_while_it_is_read_is_read_again(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has the content after the changes."""
    write({"kiosk.py": "import price", "price.py": "OLD = 1"})
    read, changes = Path.read_bytes, ["CHANGED = 1", "CHANGED = 22"]

    def change(path: Path) -> bytes:
        data = read(path)
        if path.name == "price.py" and changes:
            path.write_text(changes.pop())
        return data

    monkeypatch.setattr(Path, "read_bytes", change)
    assert read_source(locate("kiosk.py")).files["price.py"] == b"CHANGED = 1"


def test_a_file_that_never_rests_is_an_error(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempts are limited."""
    write({"kiosk.py": ""})
    read = Path.read_bytes

    def grow(path: Path) -> bytes:
        data = read(path)
        path.write_bytes(data + b"#")
        return data

    monkeypatch.setattr(Path, "read_bytes", grow)
    with pytest.raises(OperationalError, match="change all the time"):
        files_of("kiosk.py")


@pytest.mark.parametrize("text", ["def", "\0", "(" * 5_000])
def test_a_module_that_python_cannot_read_is_packed_as_it_is(write: Write, text: str) -> None:
    """A broken module does not stop the reading."""
    write({"shop/__init__.py": "", "shop/broken.py": text})
    assert read_source(locate("shop")).files["shop/broken.py"] == text.encode()


def test_equal_sources_have_equal_archives(tmp_path: Path) -> None:
    """The order of files does not matter; an archive is stored once, for its owner only."""
    files = {"b.py": b"1", "a/c.py": b"2"}
    assert pack(files) == pack(dict(reversed(files.items())))
    archives = Archives(tmp_path)
    name = archives.put(pack(files))
    assert archives.put(pack(files)) == name == hash_of((tmp_path / file_of(name)).read_bytes())
    assert archives.files(name) == files
    assert (tmp_path / file_of(name)).stat().st_mode & 0o077 == 0


def test_a_changed_archive_is_refused_and_the_next_start_replaces_it(tmp_path: Path) -> None:
    """A changed archive is noticed by its name."""
    archives = Archives(tmp_path)
    name = archives.put(pack({"a.py": b"1"}))
    (tmp_path / file_of(name)).write_bytes(pack({"a.py": b"2"}))
    with pytest.raises(Corrupt, match="was changed"):
        archives.files(name)
    archives.put(pack({"a.py": b"1"}))
    assert archives.files(name) == {"a.py": b"1"}


def test_a_library_is_recorded_by_the_name_of_its_distribution(write: Write) -> None:
    """A module whose distribution has another name is found, too; an unknown module is left out."""
    write({"kiosk.py": "import msgspec, yaml, no_such_library"})
    code, _ = code_of(locate("kiosk.py"))
    names = [name.lower() for name in code.libraries]
    assert sorted(names) == ["msgspec", "pyyaml"]
    assert all(version[0].isdigit() for version in code.libraries.values())
