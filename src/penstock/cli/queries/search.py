"""`penstock view search`: find rows of a view whose target is a search index."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import DataOptions, JsonOption
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.cli.running.view import named_view
from penstock.errors import ConfigError, RequestError, ViewUnavailable
from penstock.files.roots import journal_root

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from penstock.client.results import Hit, SearchAnswer

HELP: Final = """Find rows of a view whose target is a search index; the best come first.

All words of the query must be in the row. "a phrase", column:word, a OR b, -word, price:[10 TO 20] and a * behind the
last word are understood. An empty query finds every row. --filter takes conditions by column, as JSON.

\b
Examples:
  penstock view search examples/shop catalogue "green tea"
  penstock view search catalogue "tea -pot" --data DIR --facet brand --filter '{"price": {"<": 10}}'
  penstock view search catalogue "gre*" --url https://shop.example --key KEY --json
"""

_FOUND_STYLE: Final = "bold yellow"

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[APP] NAME QUERY", help="Application, view and query."),
]


def command(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="Only rows of this table.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="The most rows.")] = 10,
    offset: Annotated[int, typer.Option("--offset", metavar="N", help="Rows to pass over.")] = 0,
    condition: Annotated[
        str, typer.Option("--filter", metavar="JSON", help="Conditions by column.")
    ] = "{}",
    facets: Annotated[
        list[str] | None,
        typer.Option("--facet", metavar="COLUMN", help="Count the values of this column."),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Pass over mistakes in the query.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find rows of a view; see `HELP`."""
    *names, query = words or [""]
    options, name = named_view(options, names)
    import msgspec

    try:
        filters = msgspec.json.decode(condition, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--filter {condition}: wants a JSON object: {error}") from error
    question = {
        "table": table,
        "limit": limit,
        "offset": offset,
        "filters": filters,
        "facets": tuple(facets or ()),
        "lenient": lenient,
        "highlight": not as_json,
    }
    if remote.url is None:
        answer = _local_answer(options.folder(), name, {"query": query, **question})
    else:
        with remote.client() as client:
            answer = client.search(name, query, **question)  # type: ignore[arg-type] # named by the dictionary
    print_result(answer, lambda console: _show(answer, console), as_json=as_json)


def _local_answer(data: "Path", name: str, question: dict[str, object]) -> "SearchAnswer":
    import msgspec

    from penstock.client.results import SearchAnswer
    from penstock.journal.deployments import Deployments
    from penstock.model.application import unknown
    from penstock.process.view_files import folder_of, read_report
    from penstock.views.target import TargetProblem

    try:
        from penstock.views.search_index import SearchIndex, SearchQuery
    except ImportError as error:
        raise ConfigError("a search needs a library: pip install 'penstock[search]'") from error
    declared = Deployments(journal_root(data)).views()
    if declared and name not in declared:
        raise RequestError(unknown("view", name, declared))
    report = read_report(data, name)
    if report is not None and report.target != "search":
        raise RequestError(f"view {name} is in {report.target}; only a search index is searched")
    try:
        answer = SearchIndex(folder_of(data, name)).search(msgspec.convert(question, SearchQuery))
    except TargetProblem as error:
        raise ViewUnavailable(f"view {name}: {error}") from error
    return msgspec.json.decode(msgspec.json.encode(answer), type=SearchAnswer)


def _show(answer: "SearchAnswer", console: "Console") -> None:
    from rich.text import Text

    table = folding_table("Score", "Table", "Row")
    for hit in answer.hits:
        row = Text()
        for name, value in hit.row.items():
            if value is not None and not name.startswith("_"):
                row.append(f"{', ' if row else ''}{name}: ")
                row.append_text(_shown(hit, name, value))
        table.add_row(f"{hit.score:.2f}", hit.table, row)
    console.print(table)
    for name, counts in answer.facets.items():
        shown = ", ".join(f"{each.value} ({each.count:,})" for each in counts)
        console.print(f"{name}: {shown}")
    noun = "row" if answer.total == 1 else "rows"
    console.print(f"{answer.total:,} {noun} at epoch {answer.epoch}")


def _shown(hit: "Hit", name: str, value: object) -> "Text":
    """Return a value as text, in which the words that were found have a style."""
    import msgspec
    from rich.text import Text

    text = Text()
    plain = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    parts = hit.highlights.get(name, [plain])
    for at, part in enumerate(parts):
        text.append(part, style=_FOUND_STYLE if at % 2 else "")
    return text
