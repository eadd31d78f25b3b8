"""The front desk of the clinic books a morning through a real gateway."""

from pathlib import Path

import pytest

from examples.clinic import desk
from tests.checkout import TOP
from tests.deployments import kept_imports
from tests.gateway_thread import RunningGateway

__all__ = ["kept_imports"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kept_imports")]

BOOKED = """\
09:00  r1  ada
09:30  r1  bob
10:00  r1  eve
not-free: NotFree: grey has a patient at 2030-05-08 09:00:00+00:00
"""


def test_desk_books_a_morning_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run of the program books nothing more, and answers the same."""
    with RunningGateway(str(TOP / "examples" / "clinic"), tmp_path) as gateway:
        for _ in range(2):
            desk.main("2030-05-06", gateway.url)
            assert capsys.readouterr().out == BOOKED
