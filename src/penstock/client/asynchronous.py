"""`AsyncClient`: calls a running application over HTTP, from an event loop.

```python
async with AsyncClient("http://127.0.0.1:8000", app) as client:
    await client.Item.create("i1", price=3)
    assert await client.Item("i1").add(5) == "Item: i1 stock updated to: 5"
```

`protocol` decides which HTTP requests to send and how to read their responses; this module sends
them through `httpx.AsyncClient`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

import httpx

from penstock.base.ids import BEFORE_FIRST, Epoch, RequestId
from penstock.client.address import Address
from penstock.client.asynchronous_pipeline import AsyncPipeline
from penstock.client.atoms import Atom, FollowedStream, Page, Start, followed
from penstock.client.concurrency import AsyncPlaces, map_in_tasks
from penstock.client.operation import HttpResponse, Operation, Pause, Send, TransportFailure
from penstock.client.pipeline_link import PipelineLink
from penstock.client.protocol import GatewayProtocol, Outcome, SentRequest
from penstock.client.results import (
    Change,
    PointAnswer,
    Rows,
    SearchAnswer,
    SqlQuery,
    ViewAnswer,
    ViewSearch,
)
from penstock.client.states import AsyncStates, Subscription
from penstock.client.transport import (
    CLOSED,
    Settings,
    Verify,
    failure_of,
    hang_up,
    limit_silence,
    repr_of,
    response_of,
    results_of,
    timeout_of,
)
from penstock.client.websocket import WebSocket
from penstock.errors import ConfigError, OperationalError, PenstockError, RequestError
from penstock.model.application import App
from penstock.model.call import AsyncCalling, Call, Preparing, append_of
from penstock.model.entity_page import LIMIT, EntityPage
from penstock.model.streams.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class AsyncConnectionPool:
    """httpx clients with one connection each; the most recently used is taken first.

    One httpx client with many connections searches all of them for each request: with 64
    connections that search costs ten times the request. Here the cost does not grow with the
    number of connections, and few connections stay warm.
    """

    def __init__(self, url: str, make: Callable[[], httpx.AsyncClient], count: int) -> None:
        """Make a connection with `make` when no idle one is left.

        Args:
            url: The URL of the gateway.
            make: Makes a connection.
            count: The most connections.
        """
        self._url = url
        self._make = make
        self._places = AsyncPlaces(count)
        self._idle: deque[httpx.AsyncClient] = deque()
        self._made: list[httpx.AsyncClient] = []
        self._streams: dict[AsyncEventConnection, None] = {}
        self._closed = False

    def is_closed(self) -> bool:
        """Say whether the client was closed."""
        return self._closed

    def check_open(self) -> None:
        """Check that the client was not closed.

        Raises:
            RuntimeError: It was.
        """
        if self._closed:
            raise RuntimeError(CLOSED)

    async def run(self, operation: Operation[T]) -> T:
        """Carry out an operation's steps to its end."""
        return await self._steps(operation, self._exchange)

    @asynccontextmanager
    async def streaming(
        self, operation: Operation[HttpResponse]
    ) -> AsyncIterator["AsyncEventConnection"]:
        """Carry out an operation on a connection of its own, which stays open in the block.

        Raises:
            RuntimeError: The client was closed.
        """
        async with self._make() as http:
            stream = AsyncEventConnection(self._url, http, self.check_open)
            self._streams[stream] = None
            try:
                await self._steps(operation, stream.exchange)
                yield stream
            finally:
                del self._streams[stream]
                await stream.leave()

    async def _steps(
        self,
        operation: Operation[T],
        exchange: Callable[[Send], Awaitable[HttpResponse | TransportFailure]],
    ) -> T:
        received: HttpResponse | TransportFailure | None = None
        while True:
            try:
                step = operation.send(received)
            except StopIteration as stop:
                result: T = stop.value
                return result
            match step:
                case Send():
                    received = await exchange(step)
                case Pause(seconds=seconds):
                    await asyncio.sleep(seconds)
                    received = None

    async def _exchange(self, step: Send) -> HttpResponse | TransportFailure:
        request = step.request
        try:
            async with self.connection(step.timeout_s) as connection:
                response = await connection.request(
                    request.verb,
                    f"{self._url}{step.path}",
                    content=request.content,
                    headers=request.headers,
                    timeout=timeout_of(step),
                )
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure_of(error)
        return response_of(response)

    @asynccontextmanager
    async def connection(self, timeout_s: float) -> AsyncIterator[httpx.AsyncClient]:
        """Take a connection, and give it back when the block ends.

        Raises:
            PoolTimeout: No connection became free within `timeout_s` seconds.
            RuntimeError: The client was closed.
        """
        self.check_open()
        await self._places.acquire(timeout_s)
        try:
            try:
                client = self._idle.pop()
            except IndexError:
                client = self._make()
                self._made.append(client)
            try:
                yield client
            finally:
                self._idle.append(client)
        finally:
            self._places.release()

    async def close(self) -> None:
        """Close all connections and give out no more."""
        self._closed = True
        for stream in list(self._streams):
            stream.end()
        for client in self._made:
            await client.aclose()


class AsyncEventConnection:
    """A connection whose response does not end."""

    def __init__(self, url: str, http: httpx.AsyncClient, check_open: Callable[[], None]) -> None:
        """Read nothing yet.

        Args:
            url: The URL of the gateway.
            http: The connection.
            check_open: Raises RuntimeError if the client was closed.
        """
        self._url = url
        self._http = http
        self._check_open = check_open
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def exchange(self, step: Send) -> HttpResponse | TransportFailure:
        """Send a request, and read the response to its end unless it is a success.

        Raises:
            RuntimeError: The client was closed.
        """
        request = self._http.build_request(
            step.request.verb,
            f"{self._url}{step.path}",
            headers=step.request.headers,
            timeout=timeout_of(step),
        )
        self._check_open()
        try:
            response = await self._http.send(request, stream=True)
            if response.status_code != 200:
                await response.aread()
                return response_of(response)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure_of(error)
        self._response, self._chunks = response, response.aiter_raw()
        limit_silence(response)
        self._check_open()  # a client that is closed from here on finds the response, and ends it
        return HttpResponse(response.status_code, response.headers, b"")

    async def read(self) -> bytes:
        """Return the next bytes; none at the end, which a cut and a silence are, too."""
        if self._chunks is None:
            return b""
        try:
            return await anext(self._chunks, b"")
        except httpx.TransportError:
            return b""

    def end(self) -> None:
        """Let a reader in another thread or task find the end."""
        if self._response is not None:
            hang_up(self._response)

    async def leave(self) -> None:
        """Close the response."""
        if self._response is not None:
            await self._response.aclose()


class AsyncPending(Generic[T]):
    """A request that is durable and will be performed, once.

    Attributes:
        request_id: The id by which any client finds the request again.
    """

    def __init__(
        self,
        sent: SentRequest,
        protocol: GatewayProtocol,
        run: Callable[[Operation[Any]], Awaitable[Any]],
    ) -> None:
        self.request_id = sent.request_id
        self._sent = sent
        self._protocol = protocol
        self._run = run

    def __repr__(self) -> str:
        return f"AsyncPending({self.request_id!r})"

    async def done(self) -> bool:
        """Say whether the request has been performed, with success or not.

        Raises:
            RequestError: The gateway knows no request with this id.
            OperationalError: The gateway could not answer.
        """
        return bool(await self._run(self._protocol.is_answered(self._sent)))

    async def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result, for `timeout_s` seconds; None: the client's `timeout_s`.

        Raises:
            TimedOut: The result is not there yet; ask again.
            RequestError: The gateway knows no request with this id.
            PenstockError: The transaction was undone, or the gateway could not answer.
        """
        result: T = await self._run(self._protocol.reply(self._sent, timeout_s))
        return result


class AsyncPointSession:
    """Views that are read at one epoch in a `with` block, one question after the other.

    The gateway keeps a read of each view open meanwhile. It ends with the block, after 10 seconds without a question, and
    after 60 seconds in all.

    Attributes:
        epoch: The epoch of all answers.
    """

    def __init__(
        self,
        views: Sequence[str],
        timeout_ms: int,
        protocol: GatewayProtocol,
        run: Callable[[Operation[Any]], Awaitable[Any]],
    ) -> None:
        self.epoch = BEFORE_FIRST
        self._views = views
        self._timeout_ms = timeout_ms
        self._protocol = protocol
        self._run = run
        self._session = ""

    def __repr__(self) -> str:
        return f"AsyncPointSession({', '.join(map(repr, self._views))}, epoch={self.epoch})"

    async def __aenter__(self) -> Self:
        begun = await self._run(self._protocol.at((), self._timeout_ms, views=self._views))
        self.epoch, self._session = begun.epoch, begun.session
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._run(self._protocol.end_at(self._session))
        except OperationalError:
            return  # the gateway ends it soon, and the answers of the block are right

    async def sql(self, view: str, query: str, parameters: Sequence[Any] = ()) -> ViewAnswer:
        """Return the rows of a SELECT in the language of the view's store, with the types of JSON.

        Args:
            view: One of the views of the session.
            query: The SELECT.
            parameters: The values for its placeholders: `?` in SQLite, `%s` in PostgreSQL.

        Raises:
            QueryError: The query is refused.
            Gone: The session has ended.
            OperationalError: The view could not answer.
        """
        return await self._ask({"view": view, "sql": query, "parameters": list(parameters)})

    async def search(self, view: str, query: str = "", **options: Any) -> SearchAnswer:
        """Return the rows of a view that a query finds, the best first.

        Args:
            view: One of the views of the session.
            query: As in `search` of the client.
            **options: Its other arguments: `table`, `limit`, `offset`, `filters`, `facets`, `highlight`, `lenient`.

        Raises:
            RequestError: The question is wrong.
            Gone: The session has ended.
            OperationalError: The view could not answer.
        """
        answer = await self._ask({"view": view, "search": {"query": query, **options}})
        if answer.search is None:
            raise OperationalError("the answer of the search is missing")
        return answer.search

    async def rows(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Rows:
        """Return the rows of a SELECT of the SQL view, as of the epoch of the session.

        Args:
            query: The SELECT.
            parameters: The values for its `?` by position, or for its `$name` by name.

        Raises:
            PenstockError: The query is refused, or could not be answered.
        """
        asked = self._protocol.rows(SqlQuery(query, parameters, as_of=self.epoch))
        rows: Rows = await self._run(asked)
        return rows

    async def _ask(self, question: Mapping[str, Any]) -> ViewAnswer:
        if not self._session:
            raise RequestError("a session begins with its `with` block")
        asked = self._protocol.at((question,), self._timeout_ms, session=self._session)
        told = await self._run(asked)
        answer: ViewAnswer = told.answers[0]
        return answer


class AsyncAtoms(Generic[T]):
    """The atoms of a stream from a number on, each once and in order.

    A connection that breaks is made again, and the next atom follows. An error leaves the position as it is: the
    same loop may begin again, or another one with `start=atoms.next`.

    Attributes:
        next: The number of the next atom; `earliest` or `latest` until the first answer.
    """

    def __init__(
        self,
        stream: FollowedStream,
        start: Start,
        protocol: GatewayProtocol,
        run: Callable[[Operation[Any]], Awaitable[Any]],
        *,
        follow: bool,
    ) -> None:
        self.next = start
        self._stream = stream
        self._protocol = protocol
        self._run = run
        self._follow = follow
        self._received: deque[Atom[T]] = deque()
        self._asked: Start = start

    def __repr__(self) -> str:
        return f"AsyncAtoms({self._stream.name!r}, next={self.next!r})"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Atom[T]:
        """Return the next atom; wait for it, unless only the atoms until now were asked for.

        Raises:
            Gone: Retention has removed the atom; `oldest` is the number of the oldest that is held.
            RequestError: The application has no such stream, or the number is beyond its end.
            OperationalError: The gateway could not answer.
        """
        while not self._received:
            operation = self._protocol.atoms(self._stream, self._asked, wait=self._follow)
            answer = await self._run(operation)
            self._received.extend(answer.atoms)
            self._asked = answer.next
            if not answer.atoms:
                self.next = answer.next
                if not self._follow and answer.next >= answer.published:
                    raise StopAsyncIteration
        atom = self._received.popleft()
        self.next = atom.number + 1
        return atom


class AsyncPages(Generic[T]):
    """The pages of a published table from a position on: its rows, and then the changes of its rows.

    A connection that breaks is made again, and the next page follows. An error leaves the position as it is.

    Attributes:
        position: Where the next page begins; empty for the beginning.
    """

    def __init__(
        self,
        table: FollowedStream,
        after: str,
        protocol: GatewayProtocol,
        run: Callable[[Operation[Any]], Awaitable[Any]],
        *,
        follow: bool,
    ) -> None:
        self.position = after
        self._table = table
        self._protocol = protocol
        self._run = run
        self._follow = follow
        self._is_over = False

    def __repr__(self) -> str:
        return f"AsyncPages({self._table.name!r}, position={self.position!r})"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page[T]:
        """Return the next page; wait for a change, unless only the table as it is now was asked for.

        Raises:
            Gone: Retention has removed changes behind the position: drop the copy, and begin again.
            RequestError: The application has no such table, or the position is of another one.
            OperationalError: The gateway could not answer.
        """
        while not self._is_over:
            operation = self._protocol.page(self._table, self.position, wait=self._follow)
            page: Page[T] = await self._run(operation)
            is_news = bool(page.changes) or page.position != self.position
            self.position = page.position
            self._is_over = page.is_complete and not (self._follow or page.changes)
            if is_news:
                return page
        raise StopAsyncIteration


class AsyncClient:
    """Calls an application through its gateways. It belongs to one event loop.

    `await client.Item("i1").add(5)`, `await client.Item.create(…)` and
    `await client.init_items(…)` perform a call and return its result or raise its error; each takes
    `request_id=`, an id that the caller chooses. With the application given, arguments are checked
    before they are sent, and results and errors have their types; without it, everything is plain
    JSON.

    Every call carries a request id, so it takes effect once, however often it had to be sent.

    Attributes:
        call: Performs calls; reaches also names that a method of the client hides.
        prepare: Returns calls as data for `send` and `bulk`, and sends nothing.
    """

    def __init__(  # noqa: PLR0913 -- each is a setting that the caller names
        self,
        url: str,
        app: App | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 8,
        connections: int = 16,
        verify: Verify = True,
        fresh: bool = True,
    ) -> None:
        """Check the settings; nothing is sent yet.

        Args:
            url: The URL of a gateway, or of a load balancer in front of several.
            app: The application, for types and checks.
            key: An API key or a token, sent to this URL only.
            timeout_s: The limit of each operation, with its retries and pauses.
            retries: How often a request is sent again.
            connections: The most connections that are kept, and the most calls of one `bulk` that
                are in flight.
            verify: True trusts the system's authorities, a path the authorities in a PEM file,
                False every certificate.
            fresh: Whether a read sees everything that this client has written or seen.

        Raises:
            ConfigError: A setting cannot be used.
        """
        settings = Settings(
            timeout_s=timeout_s,
            retries=retries,
            connections=connections,
            verify=verify,
            fresh=fresh,
        )
        self._address = Address(url, key)
        self._workers = connections
        self._protocol = settings.protocol(app)
        options = settings.options(self._address)
        self._dial = lambda: WebSocket.dial(self._address.url, options)
        self._pool = AsyncConnectionPool(
            self._address.url, lambda: httpx.AsyncClient(**options), connections
        )
        self.call = AsyncCalling(app, self._perform)
        self.prepare = Preparing(app, lambda call: call)

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that a response has named; -1 before the first."""
        return self._protocol.epoch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.call, name)

    def __repr__(self) -> str:
        return repr_of("AsyncClient", self._address, self._protocol.app)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def append(
        self, stream: Stream[T] | str, events: Iterable[T], *, request_id: str | None = None
    ) -> int:
        """Append events to a stream, as one atom, and return their number.

        When this returns, the epoch of the append is committed. For an append that is only durable then, or for
        many appends, `prepare.append` returns an append for `send` and `bulk`.

        Args:
            stream: The stream, or its name.
            events: The events of the atom.
            request_id: An id that the caller chooses; an append with a known id has no effect.

        Raises:
            RequestError: The application has no such stream, or an event does not fit; nothing was appended.
            RequestConflict: The request id was used with other events.
            PenstockError: The gateway could not take the append, or did not answer in time.
        """
        appended: int = await self._perform(append_of(stream, events, request_id))
        return appended

    async def send(self, call: Call[T], *, delay_s: float = 0.0) -> AsyncPending[T]:
        """Append a prepared call or append to the log, to be performed once, `delay_s` from now.

        When this returns, the request is durable.

        Raises:
            RequestError: The application has no such class or method, or the arguments do not fit.
            RequestConflict: The request id was used with another body.
            OperationalError: The gateway could not take the request.
        """
        return self._pending(await self._pool.run(self._protocol.send(call, delay_s)))

    async def cancel(self, request_id: str) -> None:
        """Cancel a request that was sent with a delay and is not due yet.

        When this returns, the request never runs, and its result is the error `Cancelled`. To
        cancel it again changes nothing.

        Raises:
            TooLate: The request was due before; `pending` returns its result.
            RequestError: The gateway knows no request with this id.
            OperationalError: The gateway could not answer.
        """
        await self._pool.run(self._protocol.cancel(request_id))

    @overload
    def pending(self, request_id: str, returns: type[T]) -> AsyncPending[T]: ...
    @overload
    def pending(self, request_id: str, returns: Any = Any) -> AsyncPending[Any]: ...
    def pending(self, request_id: str, returns: Any = Any) -> AsyncPending[Any]:
        """Return a handle on a request that was sent before; `returns` is the type of its result."""
        return self._pending(SentRequest(RequestId(request_id), returns))

    @overload
    async def bulk(
        self, calls: Iterable[Call[T]], *, raise_errors: Literal[True] = True
    ) -> list[T]: ...
    @overload
    async def bulk(
        self, calls: Iterable[Call[T]], *, raise_errors: bool
    ) -> list[T | PenstockError]: ...
    async def bulk(self, calls: Iterable[Call[Any]], *, raise_errors: bool = True) -> list[Any]:
        """Perform many prepared calls concurrently and return their results in the calls' order.

        The calls run in any order, each as a transaction; all have been tried when this returns.

        Args:
            calls: Calls that `client.prepare` returned.
            raise_errors: Whether the first error is raised. Otherwise an error takes the place of
                its call's result.

        Returns:
            One result for each call.

        Raises:
            PenstockError: The error of the first call, in order, that failed.
        """
        outcomes = await map_in_tasks(self._outcome, calls, self._workers)
        return results_of(outcomes, raise_errors=raise_errors)

    def pipeline(self, *, unanswered: int = 2_000, accepted: bool = False) -> AsyncPipeline:
        """Return a pipeline for a `with` block: it sends many calls at once over one connection.

        Each call has its own result, and takes effect once, also if the connection breaks. At the end of the
        block the pipeline waits for all answers.

        Args:
            unanswered: The most calls without an answer; a further call waits.
            accepted: Whether the gateway says when each call is durable, so that `accepted()` of a call can wait for it.

        Raises:
            ConfigError: `unanswered` is less than 1.
        """
        if unanswered < 1:
            raise ConfigError(f"unanswered = {unanswered}: must be at least 1")
        link = PipelineLink(self._dial, self._protocol.policy, accepted=accepted)
        return AsyncPipeline(self._protocol, link, unanswered, accepted=accepted)

    @overload
    async def read_many(
        self, calls: Iterable[Call[T]], *, raise_errors: Literal[True] = True
    ) -> list[T]: ...
    @overload
    async def read_many(
        self, calls: Iterable[Call[T]], *, raise_errors: bool
    ) -> list[T | PenstockError]: ...
    async def read_many(
        self, calls: Iterable[Call[Any]], *, raise_errors: bool = True
    ) -> list[Any]:
        """Perform prepared `@readonly` calls in one HTTP request and return their results in order.

        All calls see the state at one epoch, which `epoch` names afterwards.

        Args:
            calls: Up to 1,000 calls that `client.prepare` returned.
            raise_errors: As in `bulk`.

        Returns:
            One result for each call.

        Raises:
            PenstockError: The gateway refused the calls, or the error of the first call that failed.
        """
        outcomes = await self._pool.run(self._protocol.read_many(list(calls)))
        return results_of(outcomes, raise_errors=raise_errors)

    @overload
    def stream(
        self,
        stream: Stream[T],
        start: Start = "earliest",
        *,
        follow: bool = True,
        where: Mapping[str, Any] | None = None,
    ) -> AsyncAtoms[T]: ...
    @overload
    def stream(
        self,
        stream: str,
        start: Start = "earliest",
        *,
        follow: bool = True,
        where: Mapping[str, Any] | None = None,
    ) -> AsyncAtoms[Any]: ...
    def stream(
        self,
        stream: Stream[Any] | str,
        start: Start = "earliest",
        *,
        follow: bool = True,
        where: Mapping[str, Any] | None = None,
    ) -> AsyncAtoms[Any]:
        """Return the atoms of a stream, each once and in order, for a loop.

        Args:
            stream: The stream, or its name.
            start: The number of the first atom, or `earliest` or `latest`.
            follow: Whether the loop waits for new atoms, without end.
            where: The values that fields of the events must have; other events are left out, and atoms without events.

        Raises:
            RequestError: The application has no such stream, or no filter can have such a name or value.
        """
        chosen = followed(self._protocol.app, stream, where)
        return AsyncAtoms(chosen, start, self._protocol, self._pool.run, follow=follow)

    @overload
    def table(self, table: Stream[T], after: str = "", *, follow: bool = True) -> AsyncPages[T]: ...
    @overload
    def table(self, table: str, after: str = "", *, follow: bool = True) -> AsyncPages[Any]: ...
    def table(
        self, table: Stream[Any] | str, after: str = "", *, follow: bool = True
    ) -> AsyncPages[Any]:
        """Return the rows of a published table and then their changes, in pages, for a loop that keeps a copy.

        Args:
            table: The table, or its name.
            after: The `position` of a page, to go on behind it; empty for the beginning.
            follow: Whether the loop waits for changes, without end. Otherwise it ends with the table as it is now.

        Raises:
            RequestError: The application has no such table.
        """
        chosen = followed(self._protocol.app, table)
        return AsyncPages(chosen, after, self._protocol, self._pool.run, follow=follow)

    @overload
    async def get(self, entity: str, key: object) -> dict[str, Any]: ...
    @overload
    async def get(self, entity: T, /) -> T: ...
    async def get(self, entity: Any, key: object = None) -> Any:
        """Return an entity, as of the newest epoch.

        Args:
            entity: A reference, or the name of a class.
            key: The key or the reference, behind the name of a class.

        Returns:
            A copy of the entity, for a reference; for a name, a dictionary of the attributes and the key.

        Raises:
            NoSuchEntity: The entity does not exist.
            Forbidden: The caller may not use it.
            RequestError: The application has no such class, or the class cannot have such a key.
            OperationalError: The gateway could not answer.
        """
        if isinstance(entity, str):
            return await self._pool.run(self._protocol.get(entity, key))
        return await self._pool.run(self._protocol.copy(entity))

    @overload
    def subscribe(self, entity: str, key: object) -> AsyncStates[dict[str, Any]]: ...
    @overload
    def subscribe(self, entity: T, /) -> AsyncStates[T]: ...
    def subscribe(self, entity: Any, key: object = None) -> AsyncStates[Any]:
        """Return the states of an entity for a loop: the present one, and the newest one after each change.

        States in between may be left out; no state is older than the one before, and none comes twice in a row. A connection
        that breaks, or is silent for 37 seconds, is made again. A loop that is slow gets a later state, and
        nothing is collected for it. `break` ends the subscription, and so does `close` of the client.

        Args:
            entity: A reference, or the name of a class.
            key: The key or the reference, behind the name of a class.

        Returns:
            The states as `EntityState`, each with an `epoch`. Its `entity` is a copy of the entity for a reference, and a
            dictionary of the attributes and the key for a name; None if the entity does not exist.

        Raises:
            Forbidden: The caller may not use the class, or may not see a state; also in the middle.
            Unauthenticated: The key or the token is not valid, or is not valid any more.
            RequestError: The application has no such class, or the class cannot have such a key.
            OperationalError: The gateway could not answer.
        """
        self._pool.check_open()
        if isinstance(entity, str):
            return self._states(self._protocol.subscription(entity, key))
        return self._states(self._protocol.subscription_of(entity))

    async def page(
        self,
        cls: type[T],
        *,
        where: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = LIMIT,
    ) -> EntityPage[T]:
        """Return a page of the entities of a class that the caller may see, in the order of their keys as text.

        Args:
            where: The values that attributes must have.
            after: `after` of the page before; empty for the first page.
            limit: The most entities, at most 1,000.

        Raises:
            RequestError: A filter does not fit the class.
            OperationalError: The gateway could not answer.
        """
        return await self._pool.run(self._protocol.entities(cls, where or {}, after, limit))

    async def changes(
        self, entity: str, from_epoch: int, to_epoch: int | None = None
    ) -> list[Change]:
        """Return the changes of all entities of a class, in the order of their epochs.

        Args:
            entity: The name of the class.
            from_epoch: The first epoch.
            to_epoch: The last epoch, which is included; None: the newest.

        Returns:
            One change for each entity and epoch that changed it.

        Raises:
            RequestError: The application has no such class.
            PenstockError: The journal does not hold these epochs, or could not be read.
        """
        return await self._pool.run(self._protocol.changes(entity, from_epoch, to_epoch))

    async def trace(self, request_id: str) -> dict[str, Any]:
        """Return how a request ran: its calls, its reads and changes, its place in the order.

        The gateway runs the request again for that, which takes seconds; docs/HISTORY.md describes
        the fields.

        Raises:
            PenstockError: No request has this id, or too many traces are being made.
        """
        return await self._pool.run(self._protocol.trace(request_id))

    async def history(
        self,
        entity: str,
        key: object,
        last: int = 20,
        *,
        from_epoch: int | None = None,
        to_epoch: int | None = None,
    ) -> dict[str, Any]:
        """Return the newest changes of an entity, each with the request that made it.

        Args:
            entity: The name of the class.
            key: The entity's key.
            last: The most changes to return.
            from_epoch: The first epoch to look at; None: the oldest that is held.
            to_epoch: The last epoch to look at, which is included; None: the newest.

        Returns:
            The fields that docs/HISTORY.md describes.

        Raises:
            NoSuchEntity: No epoch that is held changed such an entity.
            RequestError: The application has no such class, or the class cannot have such a key.
            OperationalError: The gateway could not answer.
        """
        return await self._pool.run(self._protocol.history(entity, key, last, from_epoch, to_epoch))

    async def rows(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        rows_max: int | None = None,
        as_of: int | datetime | None = None,
    ) -> Rows:
        """Return the rows of a SELECT over one epoch, as plain values.

        Args:
            query: The SELECT.
            parameters: The values for its `?` by position, or for its `$name` by name.
            rows_max: A result with more rows is refused.
            as_of: Query this epoch, or the newest epoch at this instant; None: the newest.

        Returns:
            The rows, their columns and their epoch.

        Raises:
            PenstockError: The query is refused, or could not be answered.
        """
        return await self._pool.run(
            self._protocol.rows(SqlQuery(query, parameters, rows_max, as_of))
        )

    async def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        rows_max: int | None = None,
        as_of: int | datetime | None = None,
    ) -> "pa.Table":
        """Return the rows of a SELECT over one epoch, as an Arrow table.

        Args:
            query: The SELECT.
            parameters: The values for its `?` by position, or for its `$name` by name.
            rows_max: A result with more rows is refused.
            as_of: Query this epoch, or the newest epoch at this instant; None: the newest.

        Returns:
            The table; the metadata of its schema has the epoch as `penstock.epoch`.

        Raises:
            ConfigError: pyarrow is not installed.
            PenstockError: The query is refused, or could not be answered.
        """
        return await self._pool.run(
            self._protocol.table(SqlQuery(query, parameters, rows_max, as_of))
        )

    async def search(  # noqa: PLR0913 -- each is a part of the question
        self,
        view: str,
        query: str = "",
        *,
        table: str | None = None,
        limit: int = 10,
        offset: int = 0,
        filters: Mapping[str, Any] | None = None,
        facets: Sequence[str] = (),
        highlight: bool = False,
        lenient: bool = False,
    ) -> SearchAnswer:
        """Return the rows of a view that a query finds, the best first, all of one epoch.

        Args:
            view: The name of a view whose target is a search index.
            query: Words, which must all be there, or the language that docs/VIEWS.md describes; empty: every row.
            table: The table; None: all tables of the view.
            limit: The most rows, up to 1,000.
            offset: The number of rows to pass over.
            filters: Conditions by column: a value, a list of values, or a dictionary from `=`, `!=`, `<`, `<=`, `>` and
                `>=` to values.
            facets: The columns whose values are counted; `*`: all that the view declares for this.
            highlight: Whether the hits show the words that were found.
            lenient: Whether mistakes in the query are passed over.

        Raises:
            RequestError: The application has no such view, or the question is wrong.
            OperationalError: The view cannot answer now, or has not reached the epoch of a write of this client in time.
        """
        return await self._pool.run(
            self._protocol.search(
                ViewSearch(
                    view, query, table, limit, offset, filters or {}, facets, highlight, lenient
                )
            )
        )

    @overload
    def at(
        self, *questions: Mapping[str, Any], timeout_s: float = 5.0
    ) -> Awaitable[PointAnswer]: ...
    @overload
    def at(self, *views: str, timeout_s: float = 5.0) -> AsyncPointSession: ...
    def at(
        self, *asked: Mapping[str, Any] | str, timeout_s: float = 5.0
    ) -> Awaitable[PointAnswer] | AsyncPointSession:
        """Ask several views at one epoch, also if they are in different stores.

        With questions, it returns their answers. With the names of views, it returns a session for a `with` block, in
        which these views are asked one question after the other.

        The epoch is not older than the newest one when the request arrives.

        Args:
            asked: Questions, each of which is a dictionary: `view`, the name of a view, or none for the SQL view; and `sql`, a
                SELECT in the language of its store, with `parameters`, or `search`, a dictionary with the arguments of
                `search`. Or the names of views.
            timeout_s: How long the views may take to meet at an epoch, and to answer.

        Raises:
            RequestError: A question is wrong.
            QueryError: A query is refused.
            OperationalError: A view is not fed now, or the views did not meet in time; the message names the view.
        """
        timeout_ms = round(timeout_s * 1_000)
        names = [each for each in asked if isinstance(each, str)]
        if not names:
            questions = [each for each in asked if not isinstance(each, str)]
            return self._pool.run(self._protocol.at(questions, timeout_ms))
        if len(names) < len(asked):
            raise RequestError("name views for a session, or give questions, and not both")
        return AsyncPointSession(names, timeout_ms, self._protocol, self._pool.run)

    async def _states(self, subscription: Subscription[T]) -> AsyncStates[T]:
        """Yield the states of a subscription, over as many connections as it takes."""
        attempt = 0
        while True:
            try:
                opening = self._protocol.subscribe(subscription)
                async with self._pool.streaming(opening) as stream:
                    while chunk := await stream.read():
                        for state in subscription.states(chunk):
                            self._protocol.note(state.epoch)
                            attempt = 0
                            yield state
            except RuntimeError:
                if not self._pool.is_closed():
                    raise
            if self._pool.is_closed():
                return
            pause_s = self._protocol.policy.pause_after(attempt, subscription.pause_s)
            await asyncio.sleep(pause_s)
            attempt += 1

    def _pending(self, sent: SentRequest) -> AsyncPending[Any]:
        return AsyncPending(sent, self._protocol, self._pool.run)

    async def _perform(self, call: Call[Any]) -> Any:
        return await self._pool.run(self._protocol.call(call))

    async def _outcome(self, call: Call[Any]) -> Outcome:
        try:
            return await self._perform(call), None
        except PenstockError as error:
            return None, error
