"""The SQL view of an application, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.process import presence
from tests.waiting import wait_for


@contextmanager
def view_process(spec: str, data: Path) -> Iterator[None]:
    """Run the view until the block ends; it must end well when its standard input does."""
    command = [sys.executable, "-m", "penstock", "view", "serve", spec, "--data", str(data)]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--supervised"], stdin=pipe, stderr=pipe) as view:
        try:
            wait_for(lambda: presence.find(data, "view") or view.poll() is not None, "the view")
            yield
        finally:
            _, messages = view.communicate(timeout=300)
    assert view.returncode == 0, messages
