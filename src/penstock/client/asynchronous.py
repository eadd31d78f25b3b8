"""`AsyncClient`: calls a running application over HTTP, from an event loop.

```python
async with AsyncClient("http://127.0.0.1:8000", app) as client:
    await client.Item.create("i1", price=3)
    assert await client.Item("i1").add(5) == "Item: i1 stock updated to: 5"
```

`protocol` decides which HTTP requests to send and how to read their responses; this module sends
them through `httpx.AsyncClient`.
"""

from collections.abc import Iterable
from typing import Any, Literal, Self, TypeVar, overload

import httpx

from penstock.base.ids import Epoch, RequestId
from penstock.client.address import Address
from penstock.client.asynchronous_atoms import AsyncAtoms
from penstock.client.asynchronous_pending import AsyncPending
from penstock.client.asynchronous_pipeline import AsyncPipeline
from penstock.client.asynchronous_pool import AsyncConnectionPool
from penstock.client.asynchronous_queries import AsyncQueries
from penstock.client.atoms import Start, followed
from penstock.client.concurrency import map_in_tasks
from penstock.client.pipeline_link import PipelineLink
from penstock.client.protocol import Outcome, SentRequest
from penstock.client.transport import Settings, Verify, repr_of, results_of
from penstock.client.websocket import WebSocket
from penstock.errors import ConfigError, PenstockError
from penstock.model.application import App
from penstock.model.call import AsyncCalling, Call, Preparing, append_of
from penstock.model.streams.stream import Stream

T = TypeVar("T")


class AsyncClient(AsyncQueries):
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
        self, stream: Stream[T], start: Start = "earliest", *, follow: bool = True
    ) -> AsyncAtoms[T]: ...
    @overload
    def stream(
        self, stream: str, start: Start = "earliest", *, follow: bool = True
    ) -> AsyncAtoms[Any]: ...
    def stream(
        self, stream: Stream[Any] | str, start: Start = "earliest", *, follow: bool = True
    ) -> AsyncAtoms[Any]:
        """Return the atoms of a stream, each once and in order, for a loop.

        Args:
            stream: The stream, or its name.
            start: The number of the first atom, or `earliest` or `latest`.
            follow: Whether the loop waits for new atoms, without end.

        Raises:
            RequestError: The application has no such stream.
        """
        chosen = followed(self._protocol.app, stream)
        return AsyncAtoms(chosen, start, self._protocol, self._pool.run, follow=follow)

    def _pending(self, sent: SentRequest) -> AsyncPending[Any]:
        return AsyncPending(sent, self._protocol, self._pool.run)

    async def _perform(self, call: Call[Any]) -> Any:
        return await self._pool.run(self._protocol.call(call))

    async def _outcome(self, call: Call[Any]) -> Outcome:
        try:
            return await self._perform(call), None
        except PenstockError as error:
            return None, error
