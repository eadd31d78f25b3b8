"""The page on clients is true: its snippets run, against a real gateway."""

import subprocess
import sys
from pathlib import Path

from tests.docs.test_pages import snippets
from tests.gateway_thread import RunningGateway

WRITTEN = "http://127.0.0.1:8000"


def test_clients_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """The page's snippets, one after the other, are one program that the README's kiosk answers."""
    kiosk = snippets("README.md")[0]
    (tmp_path / "kiosk.py").write_text(kiosk)
    served = tmp_path / "served_kiosk.py"  # a module of this process, whose name stays taken
    served.write_text(kiosk)
    program = "\n".join(snippets("docs/CLIENTS.md"))
    with RunningGateway(str(served), tmp_path / "data") as running:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace(WRITTEN, running.url)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
