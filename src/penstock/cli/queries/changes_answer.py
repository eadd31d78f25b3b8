"""The answers of `penstock changes`: from the journal or from a gateway, and as a table."""

import time
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from penstock.base.difference import attribute_differences
from penstock.base.http import EPOCH
from penstock.cli.options import AppOptions
from penstock.cli.output import safe_console
from penstock.cli.queries.sql_answer import opened_history, require_journal
from penstock.cli.queries.sql_table import ROWS_SHOWN, cell_text, table_of
from penstock.cli.remote import RemoteOptions
from penstock.cli.value_text import difference_text, value_text
from penstock.errors import ConfigError
from penstock.sql_view.query import Query
from penstock.sql_view.result_format import ResultFormat, encode_result, json_rows
from penstock.sql_view.view_client import EncodedAnswer

_QUERY: Final = "SELECT * FROM changes(?, ?, ?)"


def changes_here(
    entity: str,
    options: AppOptions,
    bounds: tuple[int | None, int | None],
    result_format: ResultFormat,
) -> EncodedAnswer:
    """Return the changes from the journal of a data directory.

    Args:
        bounds: The first and the last epoch, if the command names them.
    """
    app, settings = options.load()
    require_journal(settings)
    first, last = bounds
    with opened_history(app, settings) as history:
        oldest, newest = history.held_epochs()
        span = [oldest if first is None else first, newest if last is None else last]
        question = Query(_QUERY, [entity, *span])
        past = question.as_of_statement()
        assert past is not None, "changes are of the past"
        result = history.ask(past, question, time.monotonic() + settings.view.time_ms / 1_000)
    return EncodedAnswer(str(result.epoch), encode_result(result, result_format))


def changes_at(
    remote: RemoteOptions,
    entity: str,
    bounds: tuple[int | None, int | None],
    result_format: ResultFormat,
) -> EncodedAnswer:
    """Return the changes that a gateway answers.

    Args:
        bounds: The first epoch; the last epoch, if the command names it.
    """
    first, last = bounds
    if first is None:
        raise ConfigError("with --url, name the first epoch: --from N")
    upto = "" if last is None else f"&to={last}"
    path = f"/entities/{quote(entity, safe='')}/changes?from={first}{upto}"
    response = remote.response(path, result_format)
    return EncodedAnswer(response.headers.get(EPOCH, "?"), response.content)


def print_changes(answer: EncodedAnswer) -> None:
    """Show each change by the elements that differ."""
    from rich.text import Text

    changes = pa.ipc.open_stream(answer.content).read_all()
    table = table_of(changes, f"up to epoch {answer.epoch}, ", "change", "lines")
    for name in ("epoch", "time", "key", "kind", "change"):
        table.add_column(name, no_wrap=name == "time", overflow="fold")
    for epoch, time_, key, change, before, after in json_rows(changes.slice(0, ROWS_SHOWN)):
        time_text = f"{time_:%Y-%m-%d %H:%M:%S}.{time_.microsecond // 1_000:03} UTC"
        cells = (str(epoch), time_text, cell_text(key), change, _difference(before, after))
        table.add_row(*map(Text, cells))
    safe_console().print(table)


def _difference(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    if before is None or after is None:
        return ", ".join(
            f"{name} {value_text(value)}" for name, value in (before or after or {}).items()
        )
    return difference_text(attribute_differences(before, after))
