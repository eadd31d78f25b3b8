"""The source of an application: the files that its code consists of, found without importing it.

The source has the Python files of the package that the location names, or its single module; all modules
that these import from the same folders, at any depth and also inside of functions; and the data files
that a module names in a string, such as `"prices.json"`, relative to its own folder. Installed libraries
do not belong to it; their names and versions are listed. `code_of` packs a source into an archive.
"""

import ast
import importlib.metadata
import importlib.util
import logging
import os
import platform
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.base.syntax import parse
from penstock.deployment.archives import pack
from penstock.deployment.loading import Location, import_began_ns, is_own, locate
from penstock.errors import ConfigError, OperationalError
from penstock.files.hashed_files import hash_of
from penstock.model.control import DeployedCode
from penstock.native import choice

_log = logging.getLogger(__name__)

DATA_FILE_BYTES_MAX: Final = 1 << 20
"""A larger data file is not part of the source."""

SOURCE_BYTES_MAX: Final = 64 << 20
"""The most bytes of all files of a source."""

OWN_PACKAGE: Final = "penstock"
_ATTEMPTS: Final = 5
_TEXT_MAX: Final = 200
_LEFT_OUT: Final = frozenset({"__init__", "conftest", "tests"})
_IMPORTERS: Final = frozenset({"import_module", "__import__"})


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an application.

    Attributes:
        files: The content of each file, by its path relative to the folder from which it is imported.
        libraries: The names of the imported top-level modules that are neither in `files` nor Python's own.
        large: The data files that are left out because they have more than `DATA_FILE_BYTES_MAX` bytes.
        changed_ns: When the last of the files was written, or got its name.
        code_changed_ns: The same of the Python files.
    """

    files: dict[str, bytes]
    libraries: frozenset[str]
    large: frozenset[Path] = frozenset()
    changed_ns: int = 0
    code_changed_ns: int = 0

    def with_files(self, others: Mapping[str, bytes]) -> "Source":
        """Return the source with the content that other files of the same path have."""
        files = {path: others.get(path, content) for path, content in self.files.items()}
        return replace(self, files=files)


def read_source(location: Location) -> Source:
    """Read the source of an application, or that of a set as a whole; see `read_sources`."""
    return merged(read_sources(location))


def read_sources(location: Location) -> list[Source]:
    """Read the source of each application of a set; all files are as they were at one time."""
    for _ in range(_ATTEMPTS):
        readings = [_Reading(part) for part in location.applications]
        sources = [reading.read() for reading in readings]
        if all(reading.is_unchanged() for reading in readings):
            return sources
    raise OperationalError(
        f"the source files of {location.module} change all the time; wait until they are written, "
        "and start again"
    )


def merged(sources: list[Source]) -> Source:
    """Return the source of a set of applications."""
    files: dict[str, bytes] = {}
    for source in sources:
        for path, content in source.files.items():
            if files.setdefault(path, content) != content:
                raise ConfigError(
                    f"two applications have different files that are imported as {path}; rename a module of them, "
                    "or put each application into a package of its own"
                )
    libraries = frozenset[str]().union(*(source.libraries for source in sources))
    large = frozenset[Path]().union(*(source.large for source in sources))
    changed_ns = max(source.changed_ns for source in sources)
    code_changed_ns = max(source.code_changed_ns for source in sources)
    return Source(dict(sorted(files.items())), libraries, large, changed_ns, code_changed_ns)


class _Reading:
    """Reads the files of a source, from the named module on."""

    def __init__(self, location: Location) -> None:
        self._module = location.module
        self._top = location.module.partition(".")[0]
        folders = [Path(location.folder), Path.cwd()]
        self._folders = [folder for folder in folders if is_own(f"{folder}/")]
        self._home = self._home_of(self._top, folders) or _installed_home(self._top)
        self._files: dict[str, bytes] = {}
        self._stamps: dict[Path, tuple[int, ...]] = {}
        self._libraries: set[str] = set()
        self._large: set[Path] = set()
        self._looked: set[str] = set()
        self._waiting: list[str] = [location.module]

    def read(self) -> Source:
        """Read all files."""
        package = self._file_of(self._module)
        if package is not None and package.name == "__init__.py":
            self._waiting += _modules_below(package.parent, self._module)
        while self._waiting:
            name = self._waiting.pop()
            parent = name.rpartition(".")[0]
            if parent:
                self._waiting.append(parent)
            if name not in self._looked:
                self._looked.add(name)
                self._look(name)
        changed = {path: changed_ns for path, (changed_ns, *_) in self._stamps.items()}
        return Source(
            dict(sorted(self._files.items())),
            frozenset(self._libraries),
            frozenset(self._large),
            max(changed.values(), default=0),
            max((changed[path] for path in changed if path.suffix == ".py"), default=0),
        )

    def is_unchanged(self) -> bool:
        """Say whether all files are still as they were read."""
        try:
            return all(_stamp(path) == stamp for path, stamp in self._stamps.items())
        except OSError:
            return False

    def _look(self, name: str) -> None:
        file = self._file_of(name)
        if file is None:
            top = name.partition(".")[0]
            is_local = top == self._top or self._home_of(top, self._folders) is not None
            if not is_local and top not in sys.stdlib_module_names:
                self._libraries.add(top)
            return
        if name in sys.stdlib_module_names:
            raise ConfigError(
                f"{file} has the name of a module of Python, {name}, which is imported in its place; rename the file, or "
                "put it into a package"
            )
        home = file.parents[name.count(".") + (file.name == "__init__.py")]
        text = self._add(file, str(file.relative_to(home)))
        try:
            tree = parse(text)
        except SyntaxError:
            return  # no process can import this file
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(tree):
            self._waiting += _imported(node, package)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._take_data(file.parent, node.value, home)

    def _file_of(self, name: str) -> Path | None:
        """Return the file of a module in the folders of the source; None if it is not there."""
        top = name.partition(".")[0]
        if top == OWN_PACKAGE:
            return None
        home = self._home if top == self._top else self._home_of(top, self._folders)
        if home is None:
            return None
        path = home / name.replace(".", "/")
        return next((file for file in _files_at(path) if file.is_file()), None)

    @staticmethod
    def _home_of(top: str, folders: list[Path]) -> Path | None:
        """Return the folder that has a top-level module or package; a folder of packages comes last."""
        for folder in folders:
            if any(file.is_file() for file in _files_at(folder / top)):
                return folder
        return next((folder for folder in folders if (folder / top).is_dir()), None)

    def _add(self, file: Path, path: str) -> bytes:
        try:
            stamp = _stamp(file)
            content = file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"cannot read {file}, which is part of the application: {error.strerror}; make the "
                "file readable, or move it out of the package"
            ) from error
        self._stamps[file] = stamp
        self._files.setdefault(path, content)
        if sum(map(len, self._files.values())) > SOURCE_BYTES_MAX:
            largest = max(self._files, key=lambda path: len(self._files[path]))
            raise ConfigError(
                f"the source of {self._module} has more than {SOURCE_BYTES_MAX >> 20} MB; its largest "
                f"file is {largest}; move files that the application does not need out of its folder"
            )
        return content

    def _take_data(self, folder: Path, text: str, home: Path) -> None:
        """Add the data file that a string of a module in `folder` names, if there is one."""
        name = text.rpartition("/")[2]
        if not 0 < len(text) <= _TEXT_MAX or "." not in name[1:] or not text.isprintable():
            return
        file = Path(os.path.normpath(folder / text))
        parts = file.relative_to(home).parts if file.is_relative_to(home) else (".",)
        if any(part.startswith(".") for part in parts) or file.suffix in (".py", ".pyc"):
            return
        try:
            size = file.stat().st_size if file.is_file() else None
        except (OSError, ValueError):
            return
        if size is not None and size > DATA_FILE_BYTES_MAX:
            self._large.add(file)
        elif size is not None and os.access(file, os.R_OK):
            self._add(file, "/".join(parts))


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the names of the modules that a node may import, in a module of `package`."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            start = ".".join([*base, *([module] if module else [])])
            if start:
                yield start
                yield from (f"{start}.{alias.name}" for alias in names if alias.name != "*")
        case ast.Call(
            func=ast.Name(id=called) | ast.Attribute(attr=called),
            args=[ast.Constant(value=str(name)), *_],
        ) if called in _IMPORTERS and all(part.isidentifier() for part in name.split(".")):
            yield name


def _modules_below(folder: Path, package: str) -> Iterator[str]:
    """Yield the modules of a package, without its tests."""
    for path in sorted(folder.iterdir()):
        name = path.stem if path.suffix == ".py" else path.name
        if not name.isidentifier() or name.startswith("test_") or name in _LEFT_OUT:
            continue
        if path.suffix == ".py" and path.is_file():
            yield f"{package}.{name}"
        elif (path / "__init__.py").is_file() and not path.is_symlink():
            yield f"{package}.{name}"
            yield from _modules_below(path, f"{package}.{name}")


def _files_at(path: Path) -> tuple[Path, Path]:
    return path / "__init__.py", path.with_name(f"{path.name}.py")


def _installed_home(top: str) -> Path | None:
    """Return the folder from which an installed package is imported; None if there is none."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        return None
    file = Path(spec.origin)
    return file.parent.parent if file.name == "__init__.py" else file.parent


def _stamp(path: Path) -> tuple[int, ...]:
    facts = path.stat()
    return facts.st_ctime_ns, facts.st_mtime_ns, facts.st_size, facts.st_ino


def loaded_code(spec: str) -> DeployedCode | None:
    """Return the code of an application that this process has just loaded; None for Penstock's own modules."""
    location = locate(spec)
    if location.module.partition(".")[0] == OWN_PACKAGE:
        return None
    return code_of(location)[0]


def imported_code(spec: str) -> DeployedCode | None:
    """Like `loaded_code`, but None also if a file was written after the import began, so the process may lack it."""
    location = locate(spec)
    if location.module.partition(".")[0] == OWN_PACKAGE:
        return None
    sources = read_sources(location)
    parts = zip(location.applications, sources, strict=True)
    if any(source.changed_ns > import_began_ns(part) for part, source in parts):
        return None
    return packed(location, sources)[0]


def code_of(
    location: Location, *, warns: bool = False, first: Collection[str] = ()
) -> tuple[DeployedCode, bytes]:
    """Return the code of an application as it is now, and the archive of its source.

    Args:
        warns: Whether the log output names data files that are too large for the archive.
        first: The labels of the applications of a set whose files the others take.

    Raises:
        ConfigError: A source file cannot be read, or the source is too large.
    """
    sources = sources_of(location, warns=warns)
    named = [part.label in first for part in location.applications]
    if any(named):
        files = merged(
            [source for source, is_first in zip(sources, named, strict=True) if is_first]
        ).files
        sources = [source.with_files(files) for source in sources]
    return packed(location, sources)


def sources_of(location: Location, *, warns: bool) -> list[Source]:
    """Like `read_sources`; with `warns`, the log output names data files that are too large for the archive."""
    sources = read_sources(location)
    large = {path for source in sources for path in source.large}
    for path in sorted(large) if warns else ():
        _log.warning(
            "%s has more than %s MB, so it is not in the archive, and processes that run the archive do not find it; "
            "name it by an absolute path, or put it into smaller files",
            path,
            DATA_FILE_BYTES_MAX >> 20,
        )
    return sources


def packed(location: Location, sources: list[Source]) -> tuple[DeployedCode, bytes]:
    """Return the code that some sources are, and its archive."""
    source = merged(sources)
    archive = pack(source.files)
    each = zip(location.applications, sources, strict=True)
    hashes = {part.label: hash_of(pack(own.files)) for part, own in each if location.is_set}
    code = DeployedCode(
        hash_of(archive),
        location.module,
        location.name,
        platform.python_version(),
        _versions_of(source.libraries),
        hashes,
    )
    return code, archive


def _versions_of(libraries: frozenset[str]) -> dict[str, str]:
    """Return the versions of the distributions that have these modules; others are left out."""
    versions: dict[str, str] = {}
    unknown = []
    for library in sorted(libraries):
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            unknown.append(library)
    for distribution in importlib.metadata.distributions() if unknown else ():
        files = "\n" + (distribution.read_text("RECORD") or "")  # each line begins with a path
        if any(f"\n{name}/" in files or f"\n{name}.py," in files for name in unknown):
            versions[distribution.name] = distribution.version
    if OWN_PACKAGE in versions:  # each epoch tells which implementation ran it
        versions[OWN_PACKAGE] += f", {choice.implementation()}"
    return dict(sorted(versions.items()))
