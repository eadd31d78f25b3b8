"""Lists of files that were taken away, where a reader may still need the files.

A manifest lists the files of a snapshot or of a backup; files that no manifest lists are removed. In a root whose
useless names stay for a while, a manifest that is taken away goes on as a retired one, which keeps its files for that time: a
reader of another host may have read the manifest just before. In a folder nobody needs this.
"""

from collections.abc import Iterator
from typing import Final

from penstock.files.shared_root import SharedRoot

_SUFFIX: Final = ".retired"


def retire(root: SharedRoot, name: str) -> None:
    """Take a manifest away; its files stay as long as useless names do."""
    if root.keeps_s and root.has(name):
        # First, so that its files are listed at each moment.
        root.replace(f"{name}{_SUFFIX}", root.get(name))
    root.remove(name)


def retired(root: SharedRoot, folder: str) -> Iterator[bytes]:
    """Yield the retired manifests of a folder whose files must stay; remove the others."""
    for name in list(root.names(folder)) if root.keeps_s else ():
        path = f"{folder}/{name}"
        if not name.endswith(_SUFFIX):
            continue
        if is_useless(root, path):
            root.remove(path)
        else:
            yield root.get(path)


def is_useless(root: SharedRoot, name: str) -> bool:
    """Say whether a name that no manifest lists has been there for so long that nobody will list or read it any more."""
    return not root.keeps_s or root.age_s(name) >= root.keeps_s
