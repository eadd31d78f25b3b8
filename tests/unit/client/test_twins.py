"""`Client` and `AsyncClient` have one source."""

import subprocess
import sys
from pathlib import Path

TWINS = Path(__file__).parents[3] / "scripts" / "twins"


def test_synchronous_client_is_generated_from_the_asynchronous_one() -> None:
    """`scripts/setup` has written the synchronous client; after a change of its source run `scripts/twins`."""
    done = subprocess.run([sys.executable, TWINS, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
