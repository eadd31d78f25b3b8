"""Connections to DuckDB."""

from tests import forked

PROGRAM = """
from penstock.sql_view.connection import open_isolated

[(shows,)] = open_isolated(64).execute("SELECT current_setting('enable_progress_bar')").fetchall()
assert shows is False
"""


def test_no_progress_is_written_to_the_output() -> None:
    """DuckDB takes a forked process for a conversation with a person; its output is the answer of a command."""
    ended = forked.run(PROGRAM)
    assert ended.returncode == 0, ended.stderr
