"""The option `--url`: a command asks the gateway of a running application in place of its data.

The key of the caller comes from `--key` or, so that no list of processes shows it, from the environment.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from penstock.base.http import JSON
from penstock.cli.options import KEY_VARIABLE
from penstock.errors import Unreachable

if TYPE_CHECKING:
    import httpx

    from penstock.client.operation import HttpResponse
    from penstock.client.synchronous import Client
    from penstock.model.application import App

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """The gateway that a command asks, if the command line names one."""

    url: UrlOption = None
    api_key: KeyOption = None

    def client(self, app: "App | None" = None, timeout_s: float = TIMEOUT_S) -> "Client":
        """Return a client of the gateway.

        Args:
            app: The application, if the command line or a setting names it.
            timeout_s: The limit of each operation.

        Raises:
            ConfigError: The URL or the key cannot be used.
        """
        from penstock.client.synchronous import Client

        return Client(self.url or "", app, key=self.api_key, timeout_s=timeout_s, retries=RETRIES)

    def get(self, path: str, returns: type[T]) -> T:
        """Return the answer to a `GET` request; raises as `response`."""
        from penstock.client.encoding import value_of

        answer: T = value_of(self.response(path), returns)
        return answer

    def response(self, path: str, accept: str = JSON) -> "HttpResponse":
        """Return the response to a `GET` request.

        Args:
            path: The path, with its query.
            accept: The media type of the answer.

        Raises:
            ConfigError: The URL or the key cannot be used.
            Unreachable: The gateway does not answer.
            PenstockError: The answer describes an error.
        """
        import httpx

        from penstock.client.encoding import error_of
        from penstock.client.transport import response_of

        with self.connection() as connection:
            try:
                received = connection.get(path, headers={"Accept": accept})
            except httpx.HTTPError as error:
                raise Unreachable(f"{self.url} does not answer: {error}") from error
        response = response_of(received)
        if response.status != httpx.codes.OK:
            raise error_of(response)
        return response

    def connection(self) -> "httpx.Client":
        """Return a connection that sends the key.

        Raises:
            ConfigError: The URL or the key cannot be used.
        """
        import httpx

        from penstock.client.address import Address
        from penstock.client.transport import CONNECT_S

        address = Address(self.url or "", self.api_key)
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_S)
        return httpx.Client(base_url=address.url, headers=address.headers, timeout=timeout)
