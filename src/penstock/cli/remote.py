"""The option `--url`: a command asks the gateway of a running application in place of its data.

The key of the caller comes from `--key` or, so that no list of processes shows it, from the environment.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from msgspec import Struct

from penstock.base.http import JSON
from penstock.cli.options import KEY_VARIABLE
from penstock.errors import TimedOut, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from penstock.client.operation import HttpResponse
    from penstock.client.synchronous import Client
    from penstock.model.application import App
    from penstock.orders.order import Order, Place, Report

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask the gateway at this URL, and read no files."),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="KEY", envvar=KEY_VARIABLE, help="With --url: an API key or a token."
    ),
]

TIMEOUT_S: Final = 60.0
RETRIES: Final = 3
"""A person who has mistyped a URL waits for less than a second."""

_OK: Final = 200
_ACCEPTED: Final = 202
_ACCEPT: Final = {"Accept": JSON}

T = TypeVar("T")
R = TypeVar("R")


class _Accepted(Struct):
    """The answer to a request that has no result yet."""

    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """The gateway that a command asks, if the command line names one."""

    url: UrlOption = None
    api_key: KeyOption = None

    def client(self, app: "App | None" = None, timeout_s: float = TIMEOUT_S) -> "Client":
        """Return a client of the gateway.

        Args:
            app: The application, if the command line or a setting names it.
        """
        from penstock.client.synchronous import Client

        return Client(self.url or "", app, key=self.api_key, timeout_s=timeout_s, retries=RETRIES)

    def give(
        self,
        order: "Order[R]",
        place: "Callable[[], Place]",
        timeout_s: float | None = None,
    ) -> R:
        """Carry an order out: through the gateway that the command line names, or else at a place on this machine.

        Args:
            place: Returns the place, if no gateway is named.
            timeout_s: How long to wait for the driver; None: the order waits for none.
        """
        if self.url is None:
            return order.carry_out(place(), timeout_s or 0.0)
        import msgspec

        # The gateway waits for the driver, and then perhaps for other gateways; the command must outlast both.
        query = "" if timeout_s is None else f"?timeout={timeout_s}"
        way, waits_s = order.way, 2 * (timeout_s or 0.0) + order.way.work_s
        body = msgspec.json.encode(order)
        result: R = self.post(way.path + query, body, JSON, way.result, waits_s)
        return result

    def report(self, report: "Report[T]", place: "Callable[[], Place]") -> T:
        """Return the report of a gateway, if the command line names one, or else of a place on this machine."""
        return report.at(place()) if self.url is None else self.get(report.path, report.answer)

    def get(self, path: str, returns: type[T]) -> T:
        """Return the answer to a `GET` request; raises as `response`."""
        return self._value(self._sent("GET", path), returns)

    def delete(self, path: str, returns: type[T]) -> T:
        """Return the answer to a `DELETE` request, which is sent once; raises as `response`."""
        return self._value(self._sent("DELETE", path), returns)

    def post(
        self, path: str, body: bytes, media_type: str, returns: type[T], timeout_s: float
    ) -> T:
        """Return the answer to a `POST` request.

        Args:
            timeout_s: How long to wait for the answer.
        """
        import msgspec

        sent = self._sent("POST", path, {"Content-Type": media_type}, body, timeout_s)
        if sent.status != _ACCEPTED:
            return self._value(sent, returns)
        # Of a late order the gateway knows only the message; of one without a driver it has the result.
        if told := msgspec.json.decode(sent.content, type=_Accepted).message:
            raise TimedOut(told)
        return msgspec.json.decode(sent.content, type=returns)

    def response(self, path: str, accept: str) -> "HttpResponse":
        """Return the response to a `GET` request."""
        from penstock.client.encoding import error_of

        response = self._sent("GET", path, {"Accept": accept})
        if response.status != _OK:
            raise error_of(response)
        return response

    @staticmethod
    def _value(response: "HttpResponse", returns: type[T]) -> T:
        from penstock.client.encoding import value_of

        answer: T = value_of(response, returns)
        return answer

    def _sent(
        self,
        verb: str,
        path: str,
        headers: "Mapping[str, str]" = _ACCEPT,
        body: bytes = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> "HttpResponse":
        import httpx

        from penstock.client.transport import response_of

        with self.connection(timeout_s) as connection:
            try:
                return response_of(connection.request(verb, path, headers=headers, content=body))
            except httpx.HTTPError as error:
                raise Unreachable(f"{self.url} does not answer: {error}") from error

    def connection(self, timeout_s: float = TIMEOUT_S) -> "httpx.Client":
        """Return a connection that sends the key.

        Args:
            timeout_s: The limit of each step of an operation.
        """
        import httpx

        from penstock.client.address import Address
        from penstock.client.transport import CONNECT_S, trust

        address = Address(self.url or "", self.api_key)
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        return httpx.Client(
            base_url=address.url, headers=address.headers, timeout=timeout, verify=trust(address)
        )
