"""A folder of applications: its packages that have an `app`, found without importing them."""

import ast
from pathlib import Path
from typing import Final

from penstock.base.syntax import parse

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
