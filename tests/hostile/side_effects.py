"""Changes that a handler can make to its process: `SIDE_EFFECTS` return, `KILLERS` end or hang it.

A side effect may outlive its handler, so other requests of the process would find it. Left out is code that
replaces the engine's own methods by others that work and mean something else: in one process with
the engine, it is the engine.
"""

import builtins
import ctypes
import datetime
import decimal
import faulthandler
import gc
import importlib
import io
import json
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy.random

from tests.hostile.exceptions import Refused, refuse

SideEffect = Callable[[], Any]


def patch(module: Any, name: str, value: Any = refuse) -> SideEffect:
    """Return a side effect that replaces a name of a module by a function that always raises."""
    return lambda: setattr(module, name, value)


def patch_later(module: str, path: str, value: Any = refuse) -> SideEffect:
    """Return a side effect that replaces something of a module of the engine."""

    def side_effect() -> None:
        found: Any = importlib.import_module(module)
        *inner, name = path.split(".")
        for one in inner:
            found = getattr(found, one)
        setattr(found, name, value)

    return side_effect


def patch_code(function: Any) -> SideEffect:
    """Return a side effect that gives a function the code of another one."""
    return lambda: setattr(function, "__code__", refuse.__code__)


def forget_modules() -> None:
    for name in [*sys.modules]:
        if name.startswith(("penstock", "msgspec", "json", "encodings", "struct")):
            del sys.modules[name]


def forget_globals() -> None:
    """Remove the names that the modules of the application and the engine have defined."""
    for name in ("penstock.engine.failure", "penstock.model.context"):
        module = vars(sys.modules[name])
        for one in [*module]:
            if not one.startswith("__"):
                del module[one]


def start_threads() -> None:
    """Start threads that raise, and some that never end."""
    threading.Thread(target=refuse).start()
    threading.Thread(target=sys.exit).start()
    for _ in range(5):
        threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()


def burn_in_thread() -> None:
    def burn() -> None:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            pass

    threading.Thread(target=burn, daemon=True).start()


def replace_signals() -> None:
    for one in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(one, signal.SIG_IGN)


def raise_in_signal() -> None:
    signal.signal(signal.SIGALRM, refuse)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


def limit_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))


def limit_file_size() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


def use_up_files() -> None:
    kept = vars(sys).setdefault("_kept", [])
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return


def fork_and_return() -> int:
    """Go on in two processes."""
    return os.fork() * 0


def fork_and_stay() -> None:
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)


def go_to_lost_folder() -> None:
    os.chdir(folder := tempfile.mkdtemp())
    os.rmdir(folder)  # noqa: PTH106


def set_decimal() -> None:
    decimal.getcontext().prec = 1
    decimal.getcontext().traps[decimal.Inexact] = True


def spoil_streams() -> None:
    sys.stdout = sys.stderr = io.StringIO()
    sys.stdout.close()


def spoil_hooks() -> None:
    sys.excepthook = sys.unraisablehook = threading.excepthook = refuse
    sys.displayhook = refuse


def spoil_logging() -> None:
    logging.disable(logging.CRITICAL)
    logging.getLogger().handlers.clear()
    logging.getLogger("penstock").handlers.clear()


def trace_by_refusal() -> None:
    sys.settrace(refuse)


def profile_by_refusal() -> None:
    sys.setprofile(refuse)


def profile_callers() -> None:
    sys._getframe(1).f_trace = refuse


def spoil_builtins() -> None:
    for name in ("len", "isinstance", "sorted", "print", "open", "str", "type", "getattr", "map"):
        setattr(builtins, name, refuse)


def empty_builtins() -> None:
    vars(builtins).clear()


def set_limit(depth: int) -> SideEffect:
    return lambda: sys.setrecursionlimit(depth)


def block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))


def shout() -> None:
    """Write into descriptors that might carry a protocol."""
    for one in (0, 1, 2):
        try:
            os.write(one, b"\x00\xffno protocol\n" * 3)
        except OSError:
            continue


SIDE_EFFECTS: Final[dict[str, SideEffect]] = {
    "recursion limit low": set_limit(120),
    "recursion limit high": set_limit(10**6),
    "trace": trace_by_refusal,
    "profile": profile_by_refusal,
    "frame trace": profile_callers,
    "gc disabled": gc.disable,
    "gc frozen": gc.freeze,
    "gc eager": lambda: gc.set_threshold(1, 1, 1),
    "gc callback": lambda: gc.callbacks.append(refuse),
    "gc debug": lambda: gc.set_debug(gc.DEBUG_SAVEALL),
    "signals ignored": replace_signals,
    "signals raise": raise_in_signal,
    "signals blocked": block_signals,
    "alarm": lambda: signal.alarm(1),
    "timer off": lambda: signal.setitimer(signal.ITIMER_REAL, 0),
    "processor timer": lambda: signal.setitimer(signal.ITIMER_PROF, 0),
    "wakeup": lambda: signal.set_wakeup_fd(-1),
    "warnings": lambda: warnings.simplefilter("error"),
    "warning": lambda: warnings.warn("said for the tests", UserWarning, stacklevel=1),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "decimal": set_decimal,
    "environment": lambda: os.environ.update(PENSTOCK_DATA="elsewhere", TZ="nowhere", PATH=""),
    "environment cleared": os.environ.clear,
    "folder": lambda: os.chdir("/"),
    "folder lost": go_to_lost_folder,
    "folder removed": lambda: os.chdir(tempfile.mkdtemp()),
    "umask": lambda: os.umask(0o777),
    "random": lambda: random.seed(1),
    "random state": lambda: random.setstate(random.Random(1).getstate()),
    "random of numpy": lambda: numpy.random.seed(1),
    "random replaced": patch(random, "random"),
    "json": patch(json, "dumps"),
    "json wrong": patch(json, "dumps", str),
    "json class": patch(json.JSONEncoder, "iterencode"),
    "json code": patch_code(json.dumps),
    "datetime": patch(datetime, "datetime"),
    "default context": patch(decimal.DefaultContext, "prec", 1),
    "sockets limited": lambda: socket.setdefaulttimeout(1e-9),
    "deposit": patch_later("tests.hostile.handlers", "Account.deposit"),
    "deposit wrong": patch_later("tests.hostile.handlers", "Account.deposit", lambda *_: 7),
    "deposit code": lambda: patch_code(sys.modules["tests.hostile.handlers"].Account.deposit)(),
    "own module": patch_later("tests.hostile.handlers", "Poor", ValueError),
    "own module hides": patch_later("tests.hostile.handlers", "len", lambda _: 0),
    "module json": lambda: sys.modules.pop("json"),
    "environment replaced": patch(os, "environ", {}),
    "environment below": lambda: os.environ._data.clear(),  # type: ignore[attr-defined]
    "switch interval": lambda: sys.setswitchinterval(10.0),
    "digits": lambda: sys.set_int_max_str_digits(640),
    "nice": lambda: os.nice(5),
    "files limited": limit_files,
    "file size limited": limit_file_size,
    "stack limited": lambda: resource.setrlimit(resource.RLIMIT_STACK, (1 << 16, 1 << 16)),
    "files used up": use_up_files,
    "threads": start_threads,
    "thread burns": burn_in_thread,
    "thread hook": lambda: threading.settrace(refuse),
    "fork and return": fork_and_return,
    "fork and stay": fork_and_stay,
    "streams closed": lambda: os.closerange(0, 3),
    "streams replaced": spoil_streams,
    "descriptors closed": lambda: os.closerange(3, 65_536),
    "shout": shout,
    "hooks": spoil_hooks,
    "logging": spoil_logging,
    "faulthandler": faulthandler.disable,
    "at exit": lambda: __import__("atexit").register(refuse),
    "audit": lambda: sys.addaudithook(lambda *_: None),
    "audit refuses": lambda: sys.addaudithook(refuse),
    "modules": forget_modules,
    "path": sys.path.clear,
    "import hook": lambda: sys.meta_path.insert(0, None),  # type: ignore[arg-type]
    "importing": patch(builtins, "__import__"),
    "globals": forget_globals,
    "builtins": spoil_builtins,
    "builtins empty": empty_builtins,
    "len": patch(builtins, "len"),
    "len wrong": patch(builtins, "len", lambda _: 0),
    "isinstance": patch(builtins, "isinstance"),
    "tuple": patch(builtins, "tuple"),
    "BaseException": patch(builtins, "BaseException", KeyError),
    "Exception": patch(builtins, "Exception", KeyError),
    "clock": patch(time, "perf_counter"),
    "msgspec encoder": patch(msgspec.msgpack, "Encoder"),
    "os.getpid": patch(os, "getpid"),
    "executor": patch_later("penstock.engine.execute", "Executor._call"),
    "transaction": patch_later("penstock.model.context", "Transaction.changes"),
    "release": patch_later("penstock.model.context", "Transaction.release"),
    "failure": patch_later("penstock.engine.execute", "failure_of"),
    "failure encoding": patch_later("penstock.engine.execute", "encode_failure", lambda _: 7),
    "rows": patch_later("penstock.runtime.spark.rows", "Rows.add"),
    "log": patch_later("penstock.log.sqlite", "SqliteLog.read"),
    "exit in a thread": lambda: threading.Thread(target=os._exit, args=(3,)).start(),
}
"""Changes of the process, by name."""


def kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def read_nowhere() -> None:
    ctypes.string_at(0)


def overflow_stack() -> None:
    sys.setrecursionlimit(10**9)
    overflow(0)


def overflow(depth: int) -> Any:
    return sorted([1], key=lambda _: overflow(depth + 1))


def loop_in_c() -> None:
    sum(range(10**12))


def loop() -> None:
    while True:
        pass


def loop_and_catch() -> None:
    while True:
        try:
            loop()
        except BaseException:  # noqa: BLE001 -- this is what is wrong with it
            continue


def hang() -> None:
    block_signals()
    time.sleep(1e6)


def lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hoard() -> None:
    held: list[bytes] = []
    while True:
        held.append(bytes(1 << 20))


def recurse() -> None:
    recurse()


def wait_for_child() -> None:
    if (child := os.fork()) == 0:
        os._exit(7)
    os.waitpid(child, 0)
    raise Refused("the child has ended")


KILLERS: Final[dict[str, SideEffect]] = {
    one.__name__: one
    for one in (
        kill_oneself, read_nowhere, overflow_stack, loop_in_c, loop_and_catch, hang, lock_twice,
    )
} | {
    "exit": lambda: os._exit(1),
    "exit well": lambda: os._exit(0),
    "abort": os.abort,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "execute": lambda: os.execv("/bin/true", ["true"]),
}  # fmt: skip
"""Acts that end their process, or leave it no other end."""

HOGS: Final[dict[str, SideEffect]] = {
    one.__name__: one for one in (loop, hoard, recurse, wait_for_child)
} | {"sleep": lambda: time.sleep(1e6), "allocate": lambda: bytearray(10 << 30)}
"""Acts that use more than they may, and are undone in place."""
