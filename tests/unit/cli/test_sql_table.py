"""Rows on a terminal: a table where it is legible, a block for each row otherwise."""

import pyarrow as pa
import pytest
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from penstock.cli.output import folding_table, folding_tree, print_result
from penstock.cli.queries.sql_table import is_legible, print_result_table
from penstock.sql_view.view_client import EncodedAnswer

KEY = "4f6e2a8c-1f0b-4f3e-9a57-2f1f7f0c9d11"


def encoded(table: pa.Table) -> EncodedAnswer:
    """Return a table as the answer to a query."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return EncodedAnswer("7", sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("names", "values", "width", "expected"),
    [
        (["a", "b"], ["1", "2"], 9, "table"),
        (["a", "b"], ["1", "2"], 8, "blocks"),
        (["id", "text"], ["i1", "x" * 200], 29, "table"),  # a long value continues in the next line
        (["id", "text"], ["i1", "x" * 200], 28, "blocks"),
        (["id", "text"], [KEY, "x" * 200], 63, "table"),
        (["id", "text"], [KEY, "x" * 200], 62, "blocks"),  # a key is not cut
        (["text"], ["x" * 200], 10, "table"),  # a block would not be wider
        ([f"c{n}" for n in range(30)], ["1"] * 30, 80, "blocks"),
    ],
)
def test_a_table_needs_room_for_each_column(
    names: list[str], values: list[str], width: int, expected: str
) -> None:
    """The beginning of each value, and the whole name of each column, fit next to each other."""
    assert is_legible(names, [values], width) is (expected == "table")
    assert is_legible(names, [], 200)


def test_a_wide_row_is_a_block(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name and no value of a wide result is cut, and values are not markup."""
    monkeypatch.setenv("COLUMNS", "60")
    columns = {f"column_{n}": [f"[red]{n}-{row}" for row in range(2)] for n in range(9)}
    print_result_table(encoded(pa.table(columns)))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["row 1", "  column_0  [red]0-0"]
    assert lines[10:12] == ["row 2", "  column_0  [red]0-1"]
    assert lines[-1] == "epoch 7, 2 rows"


def test_a_narrow_row_is_in_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that fits is a table with a caption."""
    monkeypatch.setenv("COLUMNS", "60")
    print_result_table(encoded(pa.table({"item": ["tea"], "stock": [5]})))
    out = capsys.readouterr().out
    assert "│ tea  │     5 │" in out
    assert "epoch 7, 1 row" in out


@pytest.mark.parametrize("wide", [KEY, f"Account/{KEY}", "two words " * 20])
def test_no_table_cuts_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wide: str
) -> None:
    """A key stands in one line of a terminal that is too narrow for the table, and long text is folded beside it."""
    monkeypatch.setenv("COLUMNS", "40")
    table = folding_table("request", "call", "failure")
    table.add_row(KEY, wide, "it has failed for a long reason " * 5)
    print_result(None, lambda console: console.print(table), as_json=False)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if KEY[:8] in line)
    assert KEY in line
    assert wide in line or " " in wide


def test_json_and_labels_are_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value as JSON is no key, so it makes no table wider than the terminal; and a tree loses no end of a label."""
    monkeypatch.setenv("COLUMNS", "60")
    table, tree = folding_table("before", "after"), Tree("root")
    table.add_row('["2026-11-29T01:49:06.806497Z",1,"purchase"]', '["spring",1]')
    tree.add(Text("call " * 20 + "→ the end"))
    print_result(None, lambda console: console.print(table, folding_tree(tree)), as_json=False)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    assert '["spring",1]' in out
    assert "→ the end" in out


def test_keys_of_a_result_are_whole_beside_long_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of a query shrinks the column of text, and not that of keys."""
    monkeypatch.setenv("COLUMNS", "63")
    print_result_table(encoded(pa.table({"id": [KEY], "text": ["x" * 200]})))
    assert f"│ {KEY} │" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 20])
def test_values_control_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """A text of an application is shown with its control characters escaped; its lines and other spaces stay."""
    monkeypatch.setenv("COLUMNS", str(width))
    text = "a\x1b[31mb\r\x00\u202e\n5\xa0€"
    print_result_table(encoded(pa.table({"id": ["i1"], "text": [text], "more": ["x"]})))

    def show(console: Console) -> None:
        table = folding_table("id")
        table.add_row(text)
        console.print(table)
        console.print(f"undone: {text}", style="red")

    print_result(None, show, as_json=False)
    out = capsys.readouterr().out
    assert not {"\x1b", "\r", "\x00", "\u202e"} & {*out}
    assert "5\xa0€" in out
    assert "undone: a\\x1b[31mb\\x00\\u202e\n5" in out  # rich leaves out the return
    assert "│ a\\x1b[31mb\\r\\x00\\u202e │" in out
