"""`AsyncPending`: a request that was sent, whose result a program may wait for."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from penstock.client.operation import Operation
from penstock.client.protocol import GatewayProtocol, SentRequest

T = TypeVar("T")


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
