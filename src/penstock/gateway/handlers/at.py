"""`POST /at`: questions to several views, answered at one epoch, at once or one after the other in a session.

The gateway reads each view in its own store, in threads. `views.alignment` says how the views meet at one epoch, and why the
answer is right. A question without a view goes to the SQL view, which answers as of the same epoch.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from penstock.base.http import EPOCH, JSON
from penstock.base.ids import Epoch
from penstock.client.results import PointAnswer, ViewAnswer
from penstock.errors import Overloaded, RequestError, TimedOut, Unreachable, ViewUnavailable
from penstock.gateway.auth.principal import Principal
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.point_sessions import PointSession, PointSessions
from penstock.gateway.route import (
    MIN_EPOCH_HEADER,
    SHOWN,
    SQL,
    Answer,
    Parameter,
    Route,
    json_content,
)
from penstock.gateway.work_threads import WorkThreads
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App, unknown
from penstock.model.target_choice import TargetChoice
from penstock.process.config import Config
from penstock.process.view_files import folder_of
from penstock.sql_view.view_client import query_view, socket_of
from penstock.views.alignment import Aligned, Aligner
from penstock.views.reading import QueryBounds, Readable, Reading
from penstock.views.targets import open_target

QUESTIONS_MAX: Final = 20
_THREADS: Final = 8
_WAITING_MAX: Final = 100
_TIMEOUT_MS: Final = 5_000
_SLACK_S: Final = 1.0
"""The time for an error of a store that has reached its time limit."""

T = TypeVar("T")


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
        views: The views of a session, which stays open for further questions at the same epoch; empty: no session.
        timeout_ms: How long the views may take to meet at an epoch, and to answer.
    """

    questions: Annotated[list[PointQuestion], Meta(max_length=QUESTIONS_MAX)] = []
    views: Annotated[list[str], Meta(max_length=QUESTIONS_MAX)] = []
    timeout_ms: Annotated[int, Meta(ge=1)] = _TIMEOUT_MS


class SessionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Further questions at the epoch of a session.

    Attributes:
        questions: The questions; the answers have their order.
        timeout_ms: How long the answers may take.
    """

    questions: Annotated[list[PointQuestion], Meta(min_length=1, max_length=QUESTIONS_MAX)]
    timeout_ms: Annotated[int, Meta(ge=1)] = _TIMEOUT_MS


_decode: Final = msgspec.json.Decoder(PointBody).decode
_decode_further: Final = msgspec.json.Decoder(SessionBody).decode


class PointReader:
    """The targets of a gateway, open for reading, and its threads that read them.

    Args:
        journal: The identity of the journal.
        count: Is told the number of open sessions.
    """

    def __init__(
        self,
        config: Config,
        tail: AsyncJournalTail,
        journal: str,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._tail = tail
        self._threads = WorkThreads(_THREADS, "penstock-at")
        self._aligner = Aligner(config.data, journal, lambda: tail.epoch)
        self._targets: dict[str, tuple[TargetChoice, str, Readable]] = {}
        self._opening = threading.Lock()
        self._waiting = 0
        self.sessions = PointSessions(config.data, self._threads, self._answer_further, count)

    async def close(self) -> None:
        """End the sessions, and the threads when their questions have been answered."""
        await self.sessions.close()
        self._aligner.close()
        self._threads.close()

    async def answer(self, app: App, body: PointBody, min_epoch: int, owner: str) -> PointAnswer:
        """Answer questions at one epoch, and begin a session if the body has views; raises as `PointHandler.at`."""
        async with self._limited(body.timeout_ms) as deadline:
            # Who asks for an epoch that may never come waits here, and not in a thread that others need.
            await self._tail.until(Epoch(min_epoch), max(0.0, deadline - time.monotonic()))
            if body.views:
                self.sessions.check_room(owner)
            names = [*body.views, *(each.view for each in body.questions if each.view is not None)]
            aligned = await self._aligned(app, dict.fromkeys(names), deadline)
            asked = partial(self._answers, body.questions, aligned, deadline)
            if not body.views:
                return PointAnswer(aligned.epoch, await self._threads.run(asked, aligned.close))
            session = await self.sessions.begin(owner, aligned)
            try:
                answers = await self.sessions.use(session, asked)
            except BaseException:
                self.sessions.end_soon(session)  # its owner learns no name of it
                raise
            return PointAnswer(aligned.epoch, answers, session.name)

    async def _answer_further(self, session: PointSession, content: bytes) -> bytes:
        body = _decoded(_decode_further, content)
        _check(body.questions)
        for each in body.questions:
            if each.view is not None and each.view not in session.readings:
                raise RequestError(unknown("view of this session", each.view, session.readings))
        async with self._limited(body.timeout_ms, session.until) as deadline:
            asked = partial(self._answers, body.questions, session.aligned, deadline)
            answers = await self.sessions.use(session, asked)
        return _encode(PointAnswer(session.epoch, answers, session.name))

    @asynccontextmanager
    async def _limited(self, timeout_ms: int, until: float = math.inf) -> AsyncIterator[float]:
        """Bound the requests that wait here, and the time of one; yields its deadline."""
        if self._waiting >= _WAITING_MAX:
            raise Overloaded(f"{_WAITING_MAX} questions at one epoch wait here already")
        timeout_ms = min(timeout_ms, self._config.view.time_ms)
        deadline = time.monotonic() + timeout_ms / 1_000
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_ms / 1_000 + _SLACK_S):
                yield min(deadline, until)
        except TimeoutError:
            raise TimedOut(f"the questions were not answered within {timeout_ms} ms") from None
        finally:
            self._waiting -= 1

    async def _aligned(self, app: App, names: Iterable[str], deadline: float) -> Aligned:
        """Return readings of views at one epoch; without a view, of the newest epoch."""
        opening = partial(self._opened, app, list(names))
        # In a thread, because the libraries of the targets are extras, which the first question loads.
        targets = await self._threads.run(opening)
        if not targets:
            return Aligned(self._tail.epoch, {})
        asked = self._aligner.ask(targets, deadline)
        try:
            return await asyncio.wrap_future(asked)
        except BaseException:
            asked.add_done_callback(_close_unused)
            raise

    def _opened(self, app: App, names: Sequence[str]) -> dict[str, Readable]:
        with self._opening:
            return {name: self._target(app, name) for name in names}

    def _target(self, app: App, name: str) -> Readable:
        plan = app.views.get(name)
        if plan is None:
            raise RequestError(unknown("view", name, app.views))
        if plan.target.kind == "kafka":
            raise RequestError(
                f"view {name} is a change log in Kafka, which answers no questions; its readers consume the topics"
            )
        url = self._config.target_settings(name).address()
        known = self._targets.get(name)
        if known is None or known[:2] != (plan.target, url):
            target: Any = open_target(plan, url, folder_of(self._config.data, name))
            known = self._targets[name] = plan.target, url, target
        return known[2]

    def _answers(
        self,
        questions: Sequence[PointQuestion],
        aligned: Aligned,
        deadline: float,
    ) -> list[ViewAnswer]:
        if time.monotonic() > deadline:
            raise TimedOut("other questions at one epoch took all the time of these")
        bounds = QueryBounds(deadline, self._config.view.rows_max)
        return [
            self._of_sql_view(each, aligned.epoch, deadline)
            if each.view is None
            else _of_view(each, aligned.readings[each.view], bounds)
            for each in questions
        ]

    def _of_sql_view(self, question: PointQuestion, epoch: Epoch, deadline: float) -> ViewAnswer:
        socket = socket_of(self._config.data)
        if socket is None:
            raise ViewUnavailable("no SQL view runs here; penstock run starts one")
        left_ms = max(1, int((deadline - time.monotonic()) * 1_000))
        as_of = {"epoch": epoch}
        body = {
            "query": question.sql,
            "parameters": question.parameters,
            "as_of": as_of,
            "timeout_ms": left_ms,
        }
        try:
            answer = query_view(socket, msgspec.json.encode(body), JSON, left_ms / 1_000 + 1)
        except Unreachable as error:
            raise ViewUnavailable(str(error)) from error
        told = msgspec.json.decode(answer.content)
        columns = [each["name"] for each in told["columns"]]
        return ViewAnswer(columns, [tuple(row) for row in told["rows"]])


def _of_view(question: PointQuestion, reading: Reading, bounds: Any) -> ViewAnswer:
    if question.search is not None:
        return ViewAnswer(search=reading.search(question.search))
    told = reading.sql(question.sql or "", question.parameters, bounds)
    return ViewAnswer([*told.columns], told.rows)


def _close_unused(asked: Future[Aligned]) -> None:
    if not asked.cancelled() and asked.exception() is None:
        asked.result().close()


def _decoded(decode: Callable[[bytes], T], content: bytes) -> T:
    try:
        return decode(content)
    except msgspec.MsgspecError as error:
        raise RequestError(f"the body: {error}") from error


def _check(questions: Iterable[PointQuestion]) -> None:
    for place, question in enumerate(questions):
        if (question.sql is None) == (question.search is None):
            raise RequestError(f"questions[{place}]: name sql or search, and not both")
        if question.view is None and question.search is not None:
            raise RequestError(f"questions[{place}]: a search names its view")


def _encode(answer: PointAnswer) -> bytes:
    return msgspec.json.encode(answer, enc_hook=str)


def _answered(epoch: Epoch, content: bytes) -> Response:
    return Response(content, media_type=JSON, headers={EPOCH: str(epoch)})


def _owner(principal: Principal) -> str:
    return principal.namespace or principal.name


_SESSION: Final = Parameter(
    "session",
    "path",
    "The id of the session, from the answer that has begun it.",
    {"type": "string", "pattern": r"^[0-9a-f]{8}-[\w-]+$"},
    is_required=True,
)


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
        of the request, or a later one. A question without a view is answered by the SQL view as of that epoch. With
        `views`, a session stays open: `POST /at/{session}` asks these views further questions at the same epoch.
        """
        body = _decoded(_decode, await request.json())
        if not body.questions and not body.views:
            raise RequestError("name questions, or the views of a session, or both")
        _check(body.questions)
        owner = _owner(request.principal)
        answer = await self._reader.answer(self._app, body, request.min_epoch(), owner)
        return _answered(answer.epoch, _encode(answer))

    @Route(
        "POST",
        "/at/{session}",
        "at",
        name="at.further",
        tag="SQL",
        right=SQL,
        parameters=(_SESSION,),
        body=json_content(SessionBody),
        answers=(Answer("The answers.", json_content(PointAnswer), SHOWN),),
        errors=(410, 429, 504),
    )
    async def further(self, request: HttpRequest) -> Response:
        """Ask further questions in a session.

        The answers are of the epoch of the session. A session that has ended is refused with `gone`: it ends after 10
        seconds without a question, 60 seconds in all, and with the gateway that has begun it.
        """
        body = await request.json()
        sessions = self._reader.sessions
        name, owner = request.path["session"], _owner(request.principal)
        return _answered(*await sessions.ask(name, owner, body))

    @Route(
        "DELETE",
        "/at/{session}",
        "at",
        name="at.end",
        tag="SQL",
        right=SQL,
        parameters=(_SESSION,),
        answers=(Answer("The session has ended.", {}, status=204),),
    )
    async def end(self, request: HttpRequest) -> Response:
        """End a session.

        A session that has ended already stays so.
        """
        await self._reader.sessions.end(request.path["session"], _owner(request.principal))
        return Response(status_code=204)
