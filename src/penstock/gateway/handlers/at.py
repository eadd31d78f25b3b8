"""`POST /at`: questions to several views, answered at one epoch.

The gateway reads each view in its own store, in threads. `views.alignment` says how the views meet at one epoch, and why the
answer is right. A question without a view goes to the SQL view, which answers as of the same epoch.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from penstock.base.http import EPOCH, JSON
from penstock.base.ids import Epoch
from penstock.client.results import PointAnswer, ViewAnswer
from penstock.errors import Overloaded, RequestError, TimedOut, ViewUnavailable
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.route import MIN_EPOCH_HEADER, SHOWN, SQL, Answer, Route, json_content
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App, unknown
from penstock.process.config import Config
from penstock.process.view_files import folder_of
from penstock.sql_view.view_client import query, socket_of, view_client

if TYPE_CHECKING:
    from penstock.views.alignment import Aligner
    from penstock.views.reading import Readable, Reading

QUESTIONS_MAX: Final = 20
_THREADS: Final = 4
_WAITING_MAX: Final = 100
_TIMEOUT_MS: Final = 5_000


class PointQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question to one view.

    Attributes:
        view: The name of a view; None: the SQL view.
        sql: A SELECT in the language of the view's store.
        parameters: The values for its placeholders: `?` in SQLite and the SQL view, `%s` in PostgreSQL.
        search: The fields of a search, as `GET /search/{view}` has them: `query`, `table`, `limit`, `filters` and so on.
    """

    view: str | None = None
    sql: str | None = None
    parameters: list[Any] = []
    search: dict[str, Any] | None = None


class PointBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Questions that are answered at one epoch.

    Attributes:
        questions: The questions; the answers have their order.
        timeout_ms: How long the views may take to meet at an epoch, and to answer.
    """

    questions: Annotated[list[PointQuestion], Meta(min_length=1, max_length=QUESTIONS_MAX)]
    timeout_ms: Annotated[int, Meta(ge=1)] = _TIMEOUT_MS


_decode: Final = msgspec.json.Decoder(PointBody).decode


class PointReader:
    """The targets of a gateway, open for reading, and its threads that read them."""

    def __init__(self, config: Config, tail: AsyncJournalTail, journal: str) -> None:
        """Open nothing yet; `journal` is the identity of the journal."""
        self._config = config
        self._journal = journal
        self._tail = tail
        self._threads = ThreadPoolExecutor(_THREADS, "penstock-at")
        self._aligner: Aligner | None = None
        self._waiting = 0

    def close(self) -> None:
        """End the threads when their questions have been answered."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, app: App, body: PointBody, min_epoch: int) -> PointAnswer:
        """Answer questions at one epoch; raises as `PointHandler.at`."""
        if self._waiting >= _WAITING_MAX:
            raise Overloaded(f"{_WAITING_MAX} questions at one epoch wait here already")
        timeout_ms = min(body.timeout_ms, self._config.view.time_ms)
        deadline = time.monotonic() + timeout_ms / 1_000
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            # Who asks for an epoch that may never come waits here, and not in a thread that others need.
            await self._tail.until(Epoch(min_epoch), timeout_ms / 1_000)
            async with asyncio.timeout(timeout_ms / 1_000 + 1.0):
                return await loop.run_in_executor(self._threads, self._answer, app, body, deadline)
        except TimeoutError:
            raise TimedOut(f"the questions were not answered within {timeout_ms} ms") from None
        finally:
            self._waiting -= 1

    def _answer(self, app: App, body: PointBody, deadline: float) -> PointAnswer:
        # The libraries of the targets are extras, and the first question loads them.
        alignment: Any = import_module("penstock.views.alignment")
        reading: Any = import_module("penstock.views.reading")
        if self._aligner is None:
            newest = lambda: self._tail.epoch  # noqa: E731 -- its only use
            self._aligner = alignment.Aligner(self._config.data, self._journal, newest)
        asked = [each.view for each in body.questions if each.view is not None]
        targets = {name: self._target(app, name) for name in dict.fromkeys(asked)}
        epoch, readings = self._tail.epoch, dict[str, "Reading"]()
        if targets:
            epoch, readings = self._aligner.aligned(targets, deadline)
        try:
            bounds = reading.QueryBounds(deadline, self._config.view.rows_max)
            answers = [
                self._of_sql_view(each, epoch, deadline)
                if each.view is None
                else _of_view(each, readings[each.view], bounds)
                for each in body.questions
            ]
        finally:
            for each in readings.values():
                each.close()
        return PointAnswer(epoch, answers)

    def _target(self, app: App, name: str) -> "Readable":
        plan = app.views.get(name)
        if plan is None:
            raise RequestError(unknown("view", name, app.views))
        targets: Any = import_module("penstock.views.targets")
        url = self._config.target_settings(name).address()
        target: Readable = targets.open_target(plan, url, folder_of(self._config.data, name))
        return target

    def _of_sql_view(self, question: PointQuestion, epoch: Epoch, deadline: float) -> ViewAnswer:
        socket = socket_of(self._config.data)
        if socket is None:
            raise ViewUnavailable("no SQL view runs here; penstock run starts one")
        import httpx  # noqa: PLC0415 -- the first query loads it

        left_ms = max(1, int((deadline - time.monotonic()) * 1_000))
        as_of = {"epoch": epoch}
        body = {
            "query": question.sql,
            "parameters": question.parameters,
            "as_of": as_of,
            "timeout_ms": left_ms,
        }
        try:
            with view_client(socket, left_ms / 1_000 + 1) as client:
                answer = query(client, msgspec.json.encode(body), JSON, None)
        except httpx.HTTPError as error:
            raise ViewUnavailable(f"the SQL view does not answer: {error!r}") from error
        told = msgspec.json.decode(answer.content)
        columns = [each["name"] for each in told["columns"]]
        return ViewAnswer(columns, [tuple(row) for row in told["rows"]])


def _of_view(question: PointQuestion, reading: "Reading", bounds: Any) -> ViewAnswer:
    if question.search is not None:
        return ViewAnswer(search=reading.search(question.search))
    told = reading.sql(question.sql or "", question.parameters, bounds)
    return ViewAnswer([*told.columns], told.rows)


def _checked(body: PointBody) -> PointBody:
    for place, question in enumerate(body.questions):
        if (question.sql is None) == (question.search is None):
            raise RequestError(f"questions[{place}]: name sql or search, and not both")
        if question.view is None and question.search is not None:
            raise RequestError(f"questions[{place}]: a search names its view")
    return body


class PointHandler:
    """Serves questions at one epoch, for one version of an application."""

    def __init__(self, app: App, reader: PointReader) -> None:
        self._app = app
        self._reader = reader

    @Route(
        "POST",
        "/at",
        "at",
        name="at.ask",
        tag="SQL",
        right=SQL,
        parameters=(MIN_EPOCH_HEADER,),
        body=json_content(PointBody),
        fields=("min_epoch",),
        answers=(Answer("The answers.", json_content(PointAnswer), SHOWN),),
        errors=(429, 504),
    )
    async def at(self, request: HttpRequest) -> Response:
        """Ask several views at one epoch.

        All answers are of the same epoch, also if the views are in different stores. It is the newest epoch at the arrival
        of the request, or a later one. A question without a view is answered by the SQL view as of that epoch.
        """
        try:
            body = _checked(_decode(await request.json()))
        except msgspec.MsgspecError as error:
            raise RequestError(f"the body: {error}") from error
        answer = await self._reader.answer(self._app, body, request.min_epoch())
        content = msgspec.json.encode(answer, enc_hook=str)
        return Response(content, media_type=JSON, headers={EPOCH: str(answer.epoch)})
