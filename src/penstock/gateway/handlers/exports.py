"""`GET /export/{entity}` and `GET /export/streams/{stream}`: the rows of a class or of a stream, at an epoch, as a file.

A child process reads and writes the rows, because they may need code of the application, and sends them as it goes. If it
fails on the way, the connection is cut, so that no caller takes a part for the whole.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.responses import Response, StreamingResponse

from penstock.base.file_formats import MEDIA_TYPES, FileFormat
from penstock.base.http import EPOCH
from penstock.base.start import program_of
from penstock.errors import OperationalError, Overloaded, RequestError
from penstock.exchange.export import EPOCH_BYTES, Export, ExportQuestion
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.intake import require_every_row
from penstock.gateway.route import SHOWN, Answer, Parameter, Route
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.question import MARK, ChildEnded, ChildOutput, answer_in, encode_question

_RUNNING_MAX: Final = 2
"""Exports of a gateway at the same time: each has a process."""

_CHUNK: Final = 64 << 10
_NAMES: Final = ", ".join(FileFormat)

_FIELD_NAMES: Final = ("format", "as_of")
_FIELDS: Final = (
    Parameter(
        "format",
        "query",
        "The format of the file.",
        {"type": "string", "enum": list(FileFormat), "default": "jsonl"},
    ),
    Parameter(
        "as_of",
        "query",
        "An epoch, or a time in ISO 8601; the default is the newest epoch.",
        {"type": "string"},
    ),
)
_ANSWER: Final = Answer(
    "The file.",
    {each: {"schema": {"type": "string"}} for each in MEDIA_TYPES.values()},
    SHOWN,
)


class ExportHandler:
    """Serves the exports of one version of an application."""

    def __init__(self, app: App, config: Config) -> None:
        self._app = app
        self._data = config.data.absolute()
        self._running = 0

    @Route(
        "GET",
        "/export/{entity}",
        "export",
        name="export.entities",
        tag="SQL",
        parameters=(
            Parameter("entity", "path", "The class.", {"type": "string"}, is_required=True),
            *_FIELDS,
        ),
        fields=_FIELD_NAMES,
        answers=(_ANSWER,),
        errors=(429,),
    )
    async def export(self, request: HttpRequest) -> Response:
        """Export a class.

        Returns all entities of a class at one epoch. The file can be imported again. Needs the right to read the class.
        """
        name = self._app.present_name(request.path["entity"])
        require_every_row(request.principal, self._app, name)
        return await self._export(request, name, is_stream=False)

    @Route(
        "GET",
        "/export/streams/{stream}",
        "export",
        name="export.events",
        tag="SQL",
        parameters=(
            Parameter("stream", "path", "The stream.", {"type": "string"}, is_required=True),
            *_FIELDS,
        ),
        fields=_FIELD_NAMES,
        answers=(_ANSWER,),
        errors=(429,),
    )
    async def export_stream(self, request: HttpRequest) -> Response:
        """Export a stream.

        Returns a row for each event up to an epoch that retention has left. Needs the right to follow the stream.
        """
        name = request.path["stream"]
        request.principal.require_follow(name)
        self._app.stream(name)
        return await self._export(request, name, is_stream=True)

    async def _export(self, request: HttpRequest, name: str, *, is_stream: bool) -> Response:
        chosen = request.field("format", "jsonl")
        if chosen not in set(FileFormat):
            raise RequestError(f"format={chosen} is unknown; the formats are {_NAMES}")
        if self._running >= _RUNNING_MAX:
            raise Overloaded(f"{_RUNNING_MAX} exports run here already")
        order = Export(name, FileFormat(chosen), request.field("as_of", ""), is_stream)
        self._running += 1
        try:
            child, epoch = await _begun(self._data, order)
        except BaseException:
            self._running -= 1
            raise
        file_name = f"{name}-{epoch}.{order.format}"
        headers = {
            EPOCH: str(epoch),
            "Content-Disposition": f'attachment; filename="{file_name}"',
        }
        return StreamingResponse(self._content(child), 200, headers, MEDIA_TYPES[order.format])

    async def _content(self, child: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
        assert child.stdout is not None, "it has a pipe"
        try:
            while chunk := await child.stdout.read(_CHUNK):
                yield chunk
            if await child.wait():
                raise OperationalError(
                    "the export has failed on the way; the log output has the reason"
                )
        finally:
            self._running -= 1
            await _end(child)


async def _begun(data: Path, order: Export) -> tuple[asyncio.subprocess.Process, int]:
    """Start a child process that writes an export; return it when its first row is on the way, with the epoch."""
    child = await asyncio.create_subprocess_exec(
        *program_of("penstock.exchange.export"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None, "it has a pipe"
    assert child.stdout is not None, "it has a pipe"
    try:
        child.stdin.write(encode_question(ExportQuestion(data, order)))
        child.stdin.close()
        first = await child.stdout.read(1)
        if first == MARK:
            return child, int.from_bytes(await child.stdout.readexactly(EPOCH_BYTES), "big")
        told = ChildOutput(first + await child.stdout.read(), await child.wait())
        try:
            answer_in(told, type(None))  # raises its error
        except ChildEnded as ended:
            raise OperationalError(
                f"the process of the export ended with exit code {ended.exit_code}"
            ) from ended
        raise OperationalError("the process of the export has said nothing")
    except BaseException:
        await _end(child)
        raise


async def _end(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()
