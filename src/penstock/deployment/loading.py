"""Find and import the application that a command line names: `load_app("examples/shop")`.

`locate` turns the text into a `Location`, which names a module the same way in every process and
from every working directory: a package is named from the folder above its outermost `__init__.py`.
A driver may ship its `Location` to workers. `load` imports it. Their errors name the user's
file and line.
"""

import ast
import importlib
import importlib.util
import math
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from penstock.base.start import before_user_code
from penstock.base.syntax import parse
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from penstock.model.application import App

_NAME_DEFAULT: Final = "app"
_BELOW: Final = "//"
"""It separates the folder of an import path from the name of a module in it."""


@dataclass(frozen=True, slots=True)
class Location:
    """The place of an application, or of a set of applications.

    Attributes:
        module: The full name under which it is imported; of a set, module and name of each application, as in
            `stock:app,orders:app`.
        name: The attribute of the module that is the application; dots lead further in. The name of a set; empty if
            the set has the name of its first application.
        folder: The folder that must be on the import path, an absolute path.
        file: The file or package folder that was named; None if a module was named.
        parts: The places of the applications of a set, if they are not all in `folder`.
    """

    module: str
    name: str
    folder: str
    file: str | None
    parts: tuple["Location", ...] = ()

    @property
    def is_set(self) -> bool:
        """Whether it is the place of a set of applications."""
        return ":" in self.module

    @property
    def label(self) -> str:
        """Module and name of a single application, `stock:app`, which identify it in a set."""
        return f"{self.module}:{self.name}"

    @property
    def applications(self) -> tuple["Location", ...]:
        """The places of the applications of a set; a single application is the only one."""
        if self.parts or not self.is_set:
            return self.parts or (self,)
        named = [part.partition(":") for part in self.module.split(",")]
        return tuple(Location(module, name, self.folder, None) for module, _, name in named)

    @property
    def spec(self) -> str:
        """The text from which `locate` returns the same modules and folders, in every working directory."""
        if self.is_set:
            return f"{self.name}=" + ",".join(part.spec for part in self.applications)
        return f"{quote(self.folder)}{_BELOW}{self.module}:{self.name}"


_began_ns: Final[dict[Location, int]] = {}
"""When this process began to import each application."""


def load_app(spec: str) -> "App":
    """Import an application.

    Args:
        spec: `module`, `module:name`, a path to a `.py` file or to a package's folder, either
            with `:name`. Without a name, the module's `app`. `/folder//module:name` is a module below a folder, with `%` codes as in a URL. A set
            of applications is a list of these, separated by commas, or a folder of packages that have an `app`.
    """
    return load(locate(spec))


def locate(spec: str) -> Location:
    """Find where an application is, without importing it.

    Raises:
        ConfigError: The file does not exist, or the text names nothing.
    """
    name, equals, listed = spec.rpartition("=")
    if (equals or "," in spec) and not Path(spec.rpartition(":")[0] or spec).exists():
        return set_of(name, [_locate_single(part.strip()) for part in listed.split(",")])
    folder = Path(spec)
    packages = packages_with_app(folder)
    if packages:
        name = folder.resolve().name
        return set_of(name, [_locate_single(str(package)) for package in packages])
    return _locate_single(spec)


def set_of(name: str, parts: Sequence[Location]) -> Location:
    """Return the place of a set of applications; its name may be empty."""
    module = ",".join(part.label for part in parts)
    return Location(module, name, parts[0].folder, None, tuple(parts))


def _locate_single(spec: str) -> Location:
    """Find where a single application is."""
    target, colon, name = spec.rpartition(":")
    if not colon:
        target, name = spec, _NAME_DEFAULT
    if not target or not name or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{spec!r} names no application; write module, module:name, or a path to a "
            ".py file or package folder"
        )
    folder, below, module = target.rpartition(_BELOW)
    if below and Path(folder).is_absolute() and _is_module(module):
        return Location(module, name, unquote(folder), None)
    path = Path(target)
    if path.is_dir() or target.endswith(".py") or "/" in target:
        return _locate_path(path, name)
    if not _is_module(target):
        raise ConfigError(f"{target!r} is not the name of a module, and this file does not exist")
    return Location(target, name, str(Path.cwd()), None)


def _is_module(text: str) -> bool:
    return not text.endswith(".py") and all(part.isidentifier() for part in text.split("."))


def _locate_path(path: Path, name: str) -> Location:
    """Name a file's module from the folder above its outermost package."""
    file = path.resolve()
    _check_file(path, file)
    if file.name == "__init__.py":
        file = file.parent
    parts, folder = [file.stem if file.is_file() else file.name], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    for part in parts:
        if not part.isidentifier():
            raise ConfigError(
                f"{path} cannot be imported: {part!r} is not a Python name; rename it"
            )
    return Location(".".join(parts), name, str(folder), str(file))


def _check_file(path: Path, file: Path) -> None:
    if file.is_dir():
        if not (file / "__init__.py").is_file():
            names = ", ".join(sorted(module.name for module in file.glob("*.py"))) or "no .py file"
            raise ConfigError(f"{path} is not a package: it has no __init__.py (it holds {names})")
    elif not file.is_file():
        raise ConfigError(f"file {path} does not exist{_neighbours(path)}")
    elif file.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file")


def _neighbours(path: Path) -> str:
    if not path.parent.is_dir():
        return f", nor does folder {path.parent}"
    names = sorted(module.name for module in path.parent.glob("*.py"))
    return f"; {path.parent} holds {', '.join(names)}" if names else ""


def load(location: Location) -> "App":
    """Import the application at a location; once for each process."""
    apps = [_load_single(part) for part in location.applications]
    from penstock.model.application_set import combined  # noqa: PLC0415 -- wrong names need no model

    return combined(apps, location.name if location.is_set else "")


def import_began_ns(location: Location) -> float:
    """Return when this process began to import a single application; infinity if it has not imported it."""
    return _began_ns.get(location, math.inf)


def _load_single(location: Location) -> "App":
    from penstock.process.tampering import refuse_changes  # noqa: PLC0415 -- wrong names need no model

    refuse_changes()  # before a module takes such a function by its name: `from random import seed`
    _PythonFirst.install()
    for folder in (str(Path.cwd()), location.folder):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    importlib.invalidate_caches()
    if location.module not in sys.modules:
        _began_ns[location] = time.time_ns()
    before_user_code()
    module = _import(location)
    _check_origin(module, location)
    from penstock.model.application import App  # noqa: PLC0415 -- wrong names need no model

    value: object = module
    for part in location.name.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, App):
        raise ConfigError(_no_app(module, location.name, value, App))
    return value


class _PythonFirst:
    """Finds Python's own modules where Python keeps them, whatever lies in the folders of `sys.path`.

    So a library that imports `email` gets Python's module, in each process, also with a file `email.py` beside the
    application. An application that imports such a file is refused; see `source`.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module; None leaves the search to the finders behind this one."""
        if path is not None or name not in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(name, _OF_PYTHON, target)

    @classmethod
    def install(cls) -> None:
        """Stand before the search of `sys.path`, and behind finders that a library has put before it."""
        if cls not in sys.meta_path:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), cls)


_STANDARD: Final = str(Path(traceback.__file__).parent)
_OF_PYTHON: Final = (_STANDARD, f"{_STANDARD}/lib-dynload")


def _import(location: Location) -> ModuleType:
    """Import a module, and translate every exception of its code: a boundary to user code."""
    try:
        return importlib.import_module(location.module)
    except PenstockError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if location.module == missing or location.module.startswith(f"{missing}."):
            raise ConfigError(
                f"module {missing!r} does not exist, neither in {location.folder} nor installed"
            ) from error
        raise ConfigError(_explain(location, error)) from error
    except KeyboardInterrupt:  # it stops the command
        raise
    except BaseException as error:
        raise ConfigError(_explain(location, error)) from error


def _explain(location: Location, error: BaseException) -> str:
    return f"{location.file or location.module} cannot be imported:\n{lines_of(error)}"


def lines_of(error: BaseException) -> str:
    """Describe an error of user code: the last lines that were running, with file and line, and the error."""
    what = "".join(traceback.format_exception_only(error)).strip()
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and frame.filename not in _MACHINERY
    ]
    own = [frame for frame in frames if is_own(frame.filename)] or frames
    shown = [] if isinstance(error, SyntaxError) else own[-_FRAMES_SHOWN:]
    lines = [f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in shown]
    return "\n".join(f"  {line}" for line in [*lines, what])


_FRAMES_SHOWN: Final = 3
_MACHINERY: Final = frozenset({__file__, importlib.__file__})
_LIBRARIES: Final = (
    "site-packages",
    "dist-packages",
    _STANDARD,
    str(Path(__file__).parents[1]),
)


def is_own(filename: str) -> bool:
    """Say whether a file is neither a library's, nor Python's, nor Penstock's."""
    return not any(part in filename for part in _LIBRARIES)


def _check_origin(module: ModuleType, location: Location) -> None:
    """Refuse a module of the right name that comes from elsewhere."""
    if location.file is None:
        return
    wanted = Path(location.file)
    wanted = wanted / "__init__.py" if wanted.is_dir() else wanted
    actual = getattr(module, "__file__", None)
    if actual is None or Path(actual).resolve() != wanted:
        raise ConfigError(
            f"{location.file} cannot be imported: its name {location.module} is taken by "
            f"{actual or 'a built-in module'}; rename it, or put it into a package"
        )


def _no_app(module: ModuleType, name: str, value: object, app_class: type) -> str:
    """Describe the object that was found instead of an application.

    Args:
        name: The attribute that was looked up.
        value: Its value; None if there is none.
    """
    where = getattr(module, "__file__", None) or module.__name__
    others = sorted(key for key, member in vars(module).items() if isinstance(member, app_class))
    if value is not None:
        problem = f"{name} in {where} is not an App but {type(value).__name__}"
    else:
        problem = f"{where} has no {name}"
    if not others:
        return f"{problem}, nor any App; write `{name} = App(…)`"
    choices = " or ".join(f"{module.__name__}:{other}" for other in others)
    return f"{problem}; it defines {choices}"


NAME: Final = "app"


def packages_with_app(folder: Path) -> list[Path]:
    """Return the packages in a folder that define `app`, sorted; empty if the folder is a package itself."""
    if not folder.is_dir() or (folder / "__init__.py").exists():
        return []
    files = sorted(folder.glob("*/__init__.py"))
    return [file.parent for file in files if file.parent.name.isidentifier() and _has_app(file)]


def _has_app(file: Path) -> bool:
    """Say whether a module binds `app`; a module that Python cannot read does not."""
    try:
        tree = parse(file.read_bytes())
    except (OSError, SyntaxError):
        return False
    return any(NAME in _bound(statement) for statement in tree.body)


def _bound(statement: ast.stmt) -> list[str]:
    """Return the names that a statement binds by an assignment or an import."""
    match statement:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name for alias in aliases]
        case _:
            return []
