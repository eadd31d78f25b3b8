"""Launchers: scripts that Spark starts in the place of Java or Python, which they start otherwise.

Spark can be told which program to start, but not with what arguments or environment.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

JAVA: Final = """\
#!/bin/sh
# Start the bundled Java. It is built without the incubating vector module, which Spark asks for and
# does not need; with the argument Java would refuse to start.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

PYTHON: Final = """\
#!/bin/sh
# Start Python with PySpark as it is installed. Spark puts a copy in a zip file in front, from which
# every process would compile all of it anew.
{path}
exec {python} "$@"
"""


def write_java(home: Path, executable: Path) -> Path:
    """Make `home` a `JAVA_HOME` that starts a Java through a launcher; atomic, and idempotent."""
    _write(home / "bin" / "java", JAVA.format(java=shlex.quote(str(executable))))
    return home


def write_python(path: Path) -> Path:
    """Write what starts this Python for Spark, with the `PYTHONPATH` of this process."""
    own = os.environ.get("PYTHONPATH")
    restored = "unset PYTHONPATH" if own is None else f"export PYTHONPATH={shlex.quote(own)}"
    _write(path, PYTHON.format(path=restored, python=shlex.quote(sys.executable)))
    return path


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8", errors="surrogateescape")
    draft.chmod(0o700)
    draft.replace(path)
