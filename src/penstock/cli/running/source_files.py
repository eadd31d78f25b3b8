"""The source files of an application, watched for changes.

Files are compared by modification time and size, which is cheap enough for several times a second
and notices the changes of every editor.
"""

from pathlib import Path

from penstock.deployment.loading import Location

_Stamp = dict[Path, tuple[int, int]]


class SourceFiles:
    """Watches the Python files of an application's package, or of its module's folder; of each application of a set."""

    def __init__(self, location: Location) -> None:
        """Remember the present state of the files."""
        self.folders = [_folder_of(part) for part in location.applications]
        self._known = self._stamp()
        self._seen = self._known

    def changed(self) -> bool:
        """Say whether files have changed since the last True, and rest since the last look.

        Editors and version control write several files one after the other; a change is reported
        when two looks in a row have seen the same.
        """
        before, self._seen = self._seen, self._stamp()
        if self._seen == self._known or self._seen != before:
            return False
        self._known = self._seen
        return True

    def _stamp(self) -> _Stamp:
        stamp: _Stamp = {}
        for path in (path for folder in self.folders for path in _python_files(folder)):
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue  # it has just been replaced
            stamp[path] = (facts.st_mtime_ns, facts.st_size)
        return stamp


def _folder_of(location: Location) -> Path:
    """Return the outermost package of an application, or the folder of its module."""
    if location.file is not None and "." not in location.module:
        file = Path(location.file)
        return file if file.is_dir() else file.parent
    top = Path(location.folder) / location.module.partition(".")[0]
    return top if top.is_dir() else top.parent


def _python_files(folder: Path) -> list[Path]:
    """Return the modules of a folder, and those of the packages in it."""
    modules: list[Path] = []
    waiting = [folder]
    while waiting:
        try:
            inside = list(waiting.pop().iterdir())
        except OSError:
            continue
        modules += [path for path in inside if path.suffix == ".py"]
        waiting += [path for path in inside if (path / "__init__.py").is_file()]
    return modules
