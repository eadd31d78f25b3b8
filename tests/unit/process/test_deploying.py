"""A process that loaded its application long ago does not run it as the code that is on disk now."""

from pathlib import Path

import pytest

from penstock.errors import OperationalError
from penstock.process.deploying import check_loaded, loaded_code

SOURCE = """\
from penstock import App, Entity


class Thing(Entity):
    name: str


app = App("things", [Thing])
"""


def test_source_that_has_changed_is_refused(tmp_path: Path) -> None:
    """A standby would record the new source as the code of epochs that the former code runs."""
    source = tmp_path / "things.py"
    source.write_text(SOURCE)
    loaded = loaded_code(str(source))
    check_loaded(str(source), loaded)
    source.write_text(SOURCE + "ANOTHER = 1\n")
    with pytest.raises(OperationalError, match="has changed since this process loaded it"):
        check_loaded(str(source), loaded)


def test_own_application_of_penstock_has_no_recorded_code() -> None:
    """Its code is a version of Penstock, and not a source to archive."""
    assert loaded_code("penstock.errors") is None
    check_loaded("penstock.errors", None)
