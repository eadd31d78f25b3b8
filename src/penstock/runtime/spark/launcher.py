"""Launchers: scripts that Spark starts instead of Java or Python, to change arguments or environment.

Spark has settings for the program that it starts, but not for arguments and environment.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

JAVA: Final = """\
#!/bin/sh
# Start the bundled Java. It has no incubating vector module, which Spark requests but does not need;
# with the argument Java would refuse to start.
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
# Start Python with the installed PySpark. Spark prepends a zip file with a copy to the path, from which
# every process would compile all modules.
{path}
exec {python} "$@"
"""


def write_java(home: Path, executable: Path) -> Path:
    """Write a `JAVA_HOME` that starts a Java through a launcher; atomic and idempotent."""
    _write(home / "bin" / "java", JAVA.format(java=shlex.quote(str(executable))))
    return home


def write_python(path: Path) -> Path:
    """Write a launcher of this Python, with the `PYTHONPATH` of this process."""
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
