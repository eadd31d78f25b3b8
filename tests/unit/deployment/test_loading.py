"""An application is found by module, file or folder, and each error names the wrong part."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.deployment.loading import Location, load, load_app, locate
from penstock.errors import ConfigError, DefinitionError
from tests.checkout import TOP

APP = """
from penstock import App, entity, key
from tests.checkout import TOP

@entity
class Thing:
    name: str = key()

app = App("things", Thing)
"""


@pytest.fixture(autouse=True)
def kept_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty directory, and remove the modules that a test imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(path: str, text: str = APP) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return path


def complaint(spec: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_app(spec)
    return str(caught.value)


def test_file() -> None:
    """A path to a file takes its `app`."""
    assert load_app(write("load_file.py")).name == "things"


def test_named_application() -> None:
    """A name after the colon takes another attribute, at any depth."""
    write("load_named.py", APP + "class Inner:\n    other = app\n")
    assert load_app("load_named.py:Inner.other").name == "things"
    assert load_app("load_named:Inner.other") is load_app("load_named.py")


def test_module_in_the_working_directory() -> None:
    """A module name is looked for in the working directory, as Python does it for a program."""
    write("load_package/inner.py")
    write("load_package/__init__.py", "")
    assert load_app("load_package.inner").name == "things"


def test_package_folder_with_relative_imports() -> None:
    """A folder is a package, whose modules may import each other relatively."""
    write("shops/load_shop/things.py")
    write("shops/load_shop/__init__.py", "from .things import app\n")
    assert load_app("shops/load_shop").name == "things"
    assert load_app("shops/load_shop/") is load_app("shops/load_shop/__init__.py")


def test_file_in_a_package_is_named_from_its_outermost_package() -> None:
    """The module's name does not depend on which file of the package was named, or from where."""
    write("outer/deep/__init__.py", "")
    write("outer/__init__.py", "")
    path = write("outer/deep/load_deep.py", "from ..near import app\n")
    write("outer/near.py")
    location = locate(path)
    assert location.module == "outer.deep.load_deep"
    assert load(location) is load_app("outer.near")


def test_modules_beside_the_file_are_importable() -> None:
    """A file may import its neighbours absolutely, as it may when Python runs it."""
    write("programs/load_neighbour.py")
    path = write("programs/load_main.py", "from load_neighbour import app\n")
    assert load_app(path).name == "things"


def test_location_loads_the_same_names_in_another_process(tmp_path: Path) -> None:
    """A worker that is given the driver's location, elsewhere, has classes of the same names."""
    write("shops/load_there/__init__.py")
    location = locate("shops/load_there")
    program = (
        "from penstock.deployment.loading import Location, load\n"
        f"app = load({location!r})\n"
        "print(app.entities['Thing'].cls.__module__)"
    )
    worker = subprocess.run(
        [sys.executable, "-c", program], cwd=TOP, capture_output=True, check=True, text=True
    )
    assert worker.stdout.strip() == "load_there"
    assert location == Location("load_there", "app", str(tmp_path / "shops"), location.file)


def test_no_such_file() -> None:
    """A wrong path is named, with the entries that exist."""
    write("here.py")
    assert complaint("./her.py") == "file her.py does not exist; . holds here.py"
    assert "nor does folder nowhere" in complaint("nowhere/her.py")


def test_no_such_module() -> None:
    """A wrong module is named, with where it was looked for."""
    message = complaint("no_such_module.inner")
    assert "module 'no_such_module' does not exist" in message
    assert str(Path.cwd()) in message


def test_folder_that_is_no_package() -> None:
    """A folder without `__init__.py` is refused, with the files that it holds."""
    write("plain/one.py")
    assert complaint("plain") == "plain is not a package: it has no __init__.py (it holds one.py)"


@pytest.mark.parametrize("spec", ["", ":app", "module:", "module:a b", "no-name", "file.txt:x y"])
def test_text_that_names_nothing(spec: str) -> None:
    """A name that is neither module nor path is refused with the allowed forms."""
    assert re.search(r"names no application|not the name of a module", complaint(spec))


def test_file_whose_name_is_no_python_name() -> None:
    """A file that Python could not import is refused before it is tried."""
    write("my-app.py")
    assert "'my-app' is not a Python name; rename it" in complaint("my-app.py")


def test_missing_application_names_those_that_are_there() -> None:
    """Without an `app`, the error lists the applications of the module as they can be named."""
    write("load_other.py", APP.replace("app =", "things ="))
    assert complaint("load_other.py").endswith("it defines load_other:things")
    write("load_none.py", "")
    assert complaint("load_none.py").endswith("nor any App; write `app = App(…)`")


def test_attribute_that_is_no_application() -> None:
    """Another object under the name is reported with its type."""
    write("load_wrong.py", "app = 3\n")
    assert "app in" in complaint("load_wrong.py")
    assert "is not an App but int" in complaint("load_wrong.py")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("\nprint(undefined)\n", 2, "NameError: name 'undefined' is not defined"),
        ("import json\n\njson.loads('{')\n", 3, "JSONDecodeError"),
        ("import no_such_library\n", 1, "No module named 'no_such_library'"),
        ("raise SystemExit(3)\n", 1, "SystemExit: 3"),
    ],
)
def test_failing_import_shows_the_users_line(text: str, line: int, what: str) -> None:
    """An exception on import is shown with the last line of the user's own code, not ours."""
    write("load_failing.py", text)
    message = complaint("load_failing.py")
    assert what in message
    assert f"load_failing.py:{line}: " in message
    assert "importlib" not in message


def test_failing_import_shows_the_lines_that_led_to_it() -> None:
    """The last lines of the user's code are shown in their order, and any exception is caught."""
    text = "class Odd(BaseException): pass\ndef inner():\n    raise Odd('x')\ndef outer():\n    inner()\nouter()\n"
    write("load_deep.py", text)
    shown = [line.rpartition(":")[2].strip() for line in complaint("load_deep.py").splitlines()]
    assert shown[-4:] == ["outer()", "inner()", "raise Odd('x')", "x"]


def test_syntax_error_shows_file_and_line() -> None:
    """A syntax error is shown as Python shows it."""
    write("load_syntax.py", "x = 1\ndef f(:\n")
    message = complaint("load_syntax.py")
    assert re.search(r'load_syntax.py", line 2', message)
    assert "SyntaxError" in message


def test_definition_error_passes_through() -> None:
    """Errors of the model reach the caller unchanged."""
    write("load_bad.py", APP.replace("key()", "'x'"))
    with pytest.raises(DefinitionError):
        load_app("load_bad.py")


def test_taken_name_is_refused() -> None:
    """A second file of the same module name is refused, never silently the first one."""
    load_app(write("first/load_twice.py"))
    message = complaint(write("second/load_twice.py"))
    assert "its name load_twice is taken by" in message
    assert "first" in message


def test_files_beside_an_application_hide_no_module_of_python() -> None:
    """A library that imports a module of Python later gets it; the application cannot have its name."""
    write("xmlrpc/__init__.py", "raise SystemError('hidden')")
    load_app(write("load_beside.py"))
    assert importlib.import_module("xmlrpc.client").__name__ == "xmlrpc.client"
    assert "its name mailbox is taken by" in complaint(write("mailbox.py"))
    assert load_app(write("test.py")).name == "things"  # Python's tests are no module of programs
