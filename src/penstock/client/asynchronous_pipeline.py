"""`AsyncPipeline`: many calls at once over one connection; each has its own result.

```python
async with client.pipeline() as pipeline:
    added = [await pipeline.call(Item.add, Item(f"i{n}"), 5) for n in range(1_000)]
    print(await added[0].result())
```
"""

import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, Generic, Literal, ParamSpec, Self, TypeVar, overload

import httpx

from penstock.base.pipeline import Answer
from penstock.client.concurrency import AsyncBackground, AsyncPlaces, AsyncSlot
from penstock.client.pipeline_encoding import body_of, value_in
from penstock.client.pipeline_link import LinkedRequest, PipelineLink
from penstock.client.protocol import GatewayProtocol
from penstock.errors import ConfigError, PenstockError, TimedOut
from penstock.model.call import AsyncCalling, Call, call_of, returns_of

P = ParamSpec("P")
T = TypeVar("T")


class AsyncPipelined(Generic[T]):
    """A request of a pipeline, whose result a program may wait for.

    Attributes:
        request_id: The id by which any client finds the request again.
    """

    __slots__ = ("_acceptance", "_returns", "_slot", "request_id")

    def __init__(self, request_id: str, returns: Any, *, accepted: bool) -> None:
        """Begin to wait.

        Args:
            request_id: The id of the request.
            returns: The type of its result.
            accepted: Whether the gateway says when the request is durable.
        """
        self.request_id = request_id
        self._returns = returns
        self._slot = AsyncSlot()
        self._acceptance = AsyncSlot() if accepted else None

    def __repr__(self) -> str:
        return f"AsyncPipelined({self.request_id!r})"

    def done(self) -> bool:
        """Say whether the answer is there."""
        return self._slot.is_full()

    async def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result, for `timeout_s` seconds; None: until the client's `timeout_s` is over.

        Raises:
            TimedOut: The result is not there yet.
            PenstockError: The transaction was undone, or the gateway could not answer.
        """
        try:
            answer = await self._slot.get(timeout_s)
        except TimeoutError:
            raise TimedOut(f"request {self.request_id} has no answer yet; ask again") from None
        result: T = value_in(answer, self._returns)
        return result

    async def accepted(self, timeout_s: float | None = None) -> None:
        """Wait until the request is durable: it takes effect then, also if this program fails.

        A call that is undone later was accepted, too.

        Args:
            timeout_s: The longest wait in seconds; None: until the client's `timeout_s` is over.

        Raises:
            ConfigError: The pipeline was opened without `accepted=True`.
            TimedOut: The request is not known to be durable yet.
            PenstockError: The gateway refused the request, or could not be reached.
        """
        if self._acceptance is None:
            raise ConfigError("open the pipeline with client.pipeline(accepted=True)")
        try:
            answer = await self._acceptance.get(timeout_s)
        except TimeoutError:
            text = f"request {self.request_id} is not known to be durable yet; ask again"
            raise TimedOut(text) from None
        if isinstance(answer, PenstockError) or (answer is not None and answer.epoch < 0):
            value_in(answer, self._returns)

    def accept(self) -> None:
        """Note that the request is durable."""
        if self._acceptance is not None and not self._acceptance.is_full():
            self._acceptance.put(None)

    def settle(self, answer: Answer | PenstockError) -> None:
        """Store the answer."""
        if self._acceptance is not None and not self._acceptance.is_full():
            self._acceptance.put(answer)
        self._slot.put(answer)


class AsyncPipeline:
    """Sends calls over one connection, without waiting for the answers of those before.

    Calls take effect in any order: wait for a result before a call that needs its effect. If the connection
    breaks, the pipeline connects again and sends the requests without an answer again. Each carries a request
    id, so it takes effect once.
    """

    def __init__(
        self, protocol: GatewayProtocol, link: PipelineLink, unanswered: int, *, accepted: bool
    ) -> None:
        """Create the pipeline, which runs in its `with` block.

        Args:
            protocol: The protocol of the client.
            link: The connection.
            unanswered: The most requests without an answer.
            accepted: Whether the link says when requests are durable.
        """
        self._accepted = accepted
        self._protocol = protocol
        self._link = link
        self._unanswered: Final = unanswered
        self._places = AsyncPlaces(unanswered)
        self._background: AsyncBackground | None = None
        self._calling = AsyncCalling(protocol.app, self.send)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._calling, name)

    async def __aenter__(self) -> Self:
        self._background = AsyncBackground(self._link.run())
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Wait for all answers; if the block was left by an error, wait for none."""
        assert self._background is not None, "the block was entered"
        try:
            if error_type is None:
                limit_s = (
                    2 * self._protocol.policy.timeout_s
                )  # the link gives each request up before
                for _place in range(self._unanswered):
                    await self._places.acquire(limit_s)
        finally:
            self._link.close()
            await self._background.join()

    async def call(
        self, method: Callable[P, T], /, *positional: P.args, **named: P.kwargs
    ) -> AsyncPipelined[T]:
        """Send the call of a method, a creation or a function: `call(Item.add, Item("i1"), 5)`.

        Raises as `send`.
        """
        return await self.send(call_of(method, positional, named))

    async def send(self, call: Call[T]) -> AsyncPipelined[T]:
        """Send a prepared call or append; wait only while too many requests have no answer.

        Raises:
            ConfigError: The `with` block of the pipeline has not begun.
            RequestError: The application has no such class or method, or the arguments do not fit.
            TimedOut: Too many requests had no answer for the client's `timeout_s`; nothing was sent.
        """
        if self._background is None:  # nothing would send the request, and give it up
            raise ConfigError(
                "a pipeline sends in its with block: with client.pipeline() as pipeline: …; async with, in an event loop"
            )
        app, policy = self._protocol.app, self._protocol.policy
        request_id = secrets.token_hex(16) if call.request_id is None else call.request_id
        body = body_of(app, call, request_id)
        pipelined: AsyncPipelined[T] = AsyncPipelined(
            request_id, returns_of(app, call), accepted=self._accepted
        )
        try:
            await self._places.acquire(policy.timeout_s)
        except httpx.PoolTimeout:
            raise TimedOut(f"{self._unanswered} requests have no answer yet") from None

        def settled(answer: Answer | PenstockError) -> None:
            if isinstance(answer, Answer):
                self._protocol.note(answer.epoch)
            pipelined.settle(answer)
            self._places.release()

        deadline_s = policy.clock() + policy.timeout_s
        accept = pipelined.accept if self._accepted else None
        self._link.submit(LinkedRequest(request_id, body, settled, deadline_s, accept))
        return pipelined

    @overload
    def results(
        self, calls: Iterable[Call[T]], *, raise_errors: Literal[True] = True
    ) -> AsyncIterator[T]: ...
    @overload
    def results(
        self, calls: Iterable[Call[T]], *, raise_errors: bool
    ) -> AsyncIterator[T | PenstockError]: ...
    async def results(
        self, calls: Iterable[Call[Any]], *, raise_errors: bool = True
    ) -> AsyncIterator[Any]:
        """Perform prepared calls, and yield their results in the calls' order as they commit.

        The calls are taken one by one, so the iterable may be longer than the memory.

        Args:
            calls: Calls that `client.prepare` returned.
            raise_errors: Whether an error is raised. Otherwise it takes the place of its call's result.

        Yields:
            One result for each call.

        Raises:
            PenstockError: The error of the first call, in order, that failed.
        """
        waiting: deque[AsyncPipelined[Any]] = deque()
        for call in calls:
            waiting.append(await self.send(call))
            while waiting and (waiting[0].done() or len(waiting) == self._unanswered):
                yield await _outcome(waiting.popleft(), raise_errors=raise_errors)
        while waiting:
            yield await _outcome(waiting.popleft(), raise_errors=raise_errors)


async def _outcome(pipelined: AsyncPipelined[Any], *, raise_errors: bool) -> Any:
    """Return the result of a request, or its error."""
    try:
        return await pipelined.result()
    except PenstockError as error:
        if raise_errors:
            raise
        return error
