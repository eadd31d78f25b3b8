"""`penstock export`: write a class, a stream or the rows of a query into a file."""

import fcntl
import glob
import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from penstock.cli.options import AppOptions, FormatOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError, OperationalError
from penstock.process.stop import interruptible

if TYPE_CHECKING:
    from penstock.base.file_formats import FileFormat
    from penstock.base.ids import Epoch
    from penstock.exchange.export import Export

HELP: Final = """Write a class, a stream, or the rows of a query, at one epoch, into a file.

The file is Parquet, CSV or JSON lines, as its suffix or --format says; - is the standard output. The file of a class can
be imported again, and gives the same entities: penstock import. A stream gives a row for each event that retention has
not removed. A query is a SELECT in quotes; it reads the SQL view, and its columns have the types of SQL.

The command reads the data directory; no process of the application needs to run. With --url, a gateway sends the file.
A file is complete or absent.

\b
Examples:
  penstock export Item items.parquet examples/shop
  penstock export Item items.csv examples/shop --as-of 120
  penstock export orders - --format jsonl --data DIR | head
  penstock export "SELECT status, count(*) FROM Order GROUP BY 1" orders.csv examples/shop
  penstock export Item items.jsonl --url http://127.0.0.1:8000
"""

Open = Callable[["Epoch"], BinaryIO]


def command(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A class, a stream, or a query in quotes.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="FILE", help="The file; - is the standard output.")
    ],
    options: AppOptions,
    remote: RemoteOptions,
    file_format: FormatOption = None,
    as_of: Annotated[
        str,
        typer.Option(
            "--as-of",
            metavar="POINT",
            help="The epoch or the time whose state is written; default: the newest epoch.",
        ),
    ] = "",
    is_stream: Annotated[
        bool, typer.Option("--stream", help="WHAT is a stream, also if a class has its name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write an export; see `HELP`."""
    if remote.url is None:
        options.find()
    from penstock.base.file_formats import FileFormat, format_of

    if file_format is not None and file_format not in set(FileFormat):
        raise ConfigError(f"--format {file_format}: there are {', '.join(FileFormat)}")
    if target == "-" and file_format is None:
        raise ConfigError("name the format of the standard output: --format parquet, csv or jsonl")
    chosen = format_of(target, None if file_format is None else FileFormat(file_format))
    with interruptible(), _Target(target) as out:
        if " " in what.strip():
            epoch = _query(what, chosen, as_of, options, remote, out)
        elif remote.url is not None:
            epoch = _remote(what, chosen, as_of, remote, out, is_stream=is_stream)
        else:
            from penstock.exchange.export import Export

            epoch = _local(Export(what, chosen, as_of, is_stream), options, out)
    if target == "-":
        return
    if as_json:
        print_json({"file": target, "epoch": epoch})
    else:
        sys.stdout.write(f"{target} has {what}, as of epoch {epoch}\n")


class _Target:
    """The file of an export: it gets its name when it is complete."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path = Path(name)
        self._beginning = f".{self._path.name}."
        self._unfinished = self._path.with_name(f"{self._beginning}{secrets.token_hex(4)}")

    def __enter__(self) -> BinaryIO:
        if self._name == "-":
            self._file: BinaryIO = sys.stdout.buffer
            return self._file
        try:
            self._remove_orphans()
            while True:
                self._file = self._unfinished.open("xb")
                with suppress(OSError):  # the file system has no locks
                    fcntl.flock(self._file, fcntl.LOCK_EX)
                if self._unfinished.exists():
                    break
                self._file.close()  # it was taken for an orphan before it had a lock
        except OSError as error:
            raise ConfigError(f"cannot write {self._name}: {error.strerror}") from error
        return self._file

    def _remove_orphans(self) -> None:
        """Remove the unfinished files of processes that were killed: they have no lock."""
        for path in self._path.parent.glob(f"{glob.escape(self._beginning)}{'[0-9a-f]' * 8}"):
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        try:
            if self._name == "-":
                self._file.flush()
            elif error_type is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._unfinished.replace(self._path)
        except OSError as failure:
            error_type, error = OSError, failure
        finally:
            if self._name != "-":
                with suppress(OSError):
                    self._file.close()
                self._unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            why = error.strerror or str(error)
            raise OperationalError(f"cannot write {self._name}: {why}") from error


def _local(order: "Export", options: AppOptions, out: BinaryIO) -> int:
    from penstock.cli.progress import ProgressBar
    from penstock.exchange.export import export

    with ProgressBar("rows") as bar:
        made = export(options.folder(), order, lambda _: out, bar.at)
    return made.epoch


def _remote(
    what: str,
    chosen: "FileFormat",
    as_of: str,
    remote: RemoteOptions,
    out: BinaryIO,
    *,
    is_stream: bool,
) -> int:
    from urllib.parse import quote

    import httpx

    from penstock.base.http import EPOCH
    from penstock.client.encoding import error_of
    from penstock.client.transport import response_of
    from penstock.errors import Unreachable

    path = f"/export/{'streams/' if is_stream else ''}{quote(what, safe='')}"
    fields = {"format": str(chosen), **({"as_of": as_of} if as_of else {})}
    try:
        with (
            remote.connection() as connection,
            connection.stream("GET", path, params=fields) as response,
        ):
            if response.status_code != httpx.codes.OK:
                response.read()
                raise error_of(response_of(response))
            for chunk in response.iter_bytes():
                out.write(chunk)
            return int(response.headers[EPOCH])
    except httpx.HTTPError as error:
        raise Unreachable(f"{remote.url} has not sent the whole file: {error}") from error


def _query(
    what: str,
    chosen: "FileFormat",
    as_of: str,
    options: AppOptions,
    remote: RemoteOptions,
    out: BinaryIO,
) -> int:
    from penstock.base.file_formats import FileFormat
    from penstock.cli.queries.sql_answer import answer_to
    from penstock.sql_view.query import Query
    from penstock.sql_view.query_body import AsOf
    from penstock.sql_view.result_format import ResultFormat

    formats = {
        FileFormat.PARQUET: ResultFormat.PARQUET,
        FileFormat.CSV: ResultFormat.CSV,
        FileFormat.LINES: ResultFormat.LINES,
    }
    past = None
    if as_of:
        past = AsOf(int(as_of)) if as_of.isdecimal() else AsOf(timestamp=as_of)
    question = Query(what, as_of=past)
    answer = answer_to(question, formats[chosen], options, remote)
    out.write(answer.content)
    return int(answer.epoch)
