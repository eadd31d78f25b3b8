"""What a handler must not use, because replay would then differ: clocks, chance, surroundings.

Objects are recognised by what they are, not by the name under which a module imported them. The
list is for warnings: it promises no completeness, and replay finds what is not on it.
"""

from types import ModuleType
from typing import Any, Final

_CLOCK: Final = "reads the real clock; use penstock.now()"
_CHANCE: Final = "differs at every run; use penstock.random()"
_ID: Final = "differs at every run; use penstock.uuid()"
_PROCESS: Final = "differs between processes"
_SURROUNDINGS: Final = "depends on the process's surroundings; pass it in the request"
_OUTSIDE: Final = "reaches outside the transaction: it may run several times, and is not undone"

_BY_NAME: Final = {
    ("_io", "open"): _OUTSIDE,
    ("io", "open"): _OUTSIDE,
    ("builtins", "hash"): _PROCESS,
    ("builtins", "id"): _PROCESS,
    ("builtins", "input"): _OUTSIDE,
    ("datetime", "now"): _CLOCK,
    ("datetime", "utcnow"): _CLOCK,
    ("datetime", "today"): _CLOCK,
    ("uuid", "uuid1"): _ID,
    ("uuid", "uuid4"): _ID,
    ("random", "Random"): "",  # a generator with a seed of one's own
    ("time", "struct_time"): "",
    ("time", "strftime"): "",
    ("time", "strptime"): "",
}
_BY_MODULE: Final = {
    "time": _CLOCK,
    "random": _CHANCE,
    "secrets": _CHANCE,
    "os": _SURROUNDINGS,
    "posix": _SURROUNDINGS,
    "platform": _SURROUNDINGS,
    "_socket": _OUTSIDE,
    **dict.fromkeys(
        (
            "aiohttp",
            "asyncio",
            "concurrent",
            "ftplib",
            "http",
            "httpx",
            "multiprocessing",
            "psycopg",
            "requests",
            "shutil",
            "smtplib",
            "socket",
            "sqlite3",
            "subprocess",
            "tempfile",
            "threading",
        ),
        _OUTSIDE,
    ),
}


def hazard_of(thing: Any) -> str:
    """Say why an object is no good in a handler; empty when it is no known hazard."""
    if isinstance(thing, ModuleType):
        return ""  # only what is taken from it counts
    module, name = _identity(thing)
    if (module, name) in _BY_NAME:
        return _BY_NAME[module, name]
    if module == "urllib.request":
        return _OUTSIDE
    if not callable(thing) and (module, name) != ("os", "_Environ"):
        return ""
    return _BY_MODULE.get(module.partition(".")[0], "")


def _identity(thing: Any) -> tuple[str, str]:
    """Return the module and the last name of an object, or of its type."""
    owner = getattr(thing, "__self__", None)
    module = getattr(thing, "__module__", None)
    if module is None and owner is not None and not isinstance(owner, ModuleType):
        module = getattr(owner if isinstance(owner, type) else type(owner), "__module__", None)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return module or type(thing).__module__, name.rpartition(".")[2]
