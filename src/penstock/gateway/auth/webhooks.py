"""Webhooks that come in: requests of a path with `signed_by`, whose signature stands for an API key.

Promises that only a sender with one of the secrets reaches the handler of such a path, and that a second delivery of an
event is the same request. Secrets are never logged or repeated in a message.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

from penstock.base.webhook_signature import check_signature
from penstock.effects.secrets import secrets_in
from penstock.errors import ConfigError, OperationalError
from penstock.files.local_root import LocalRoot
from penstock.gateway.auth.exposure import NOT_SET
from penstock.gateway.auth.principal import Principal, Scope
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.model.application import App
from penstock.model.route import Route, SignedBy
from penstock.process.config import GatewayConfig

_log = logging.getLogger(__name__)
_SETTING: Final = "gateway.secrets"


class WebhookSecrets:
    """The secrets with which senders sign: those of a file, which may change at any time, and of the environment.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(
        self, settings: GatewayConfig, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._environment = environment
        self._file: WatchedFile[dict[str, str]] | None = None
        path = settings.secrets
        if path != NOT_SET:
            read = partial(secrets_in, _SETTING, path)
            self._file = WatchedFile(LocalRoot(path.parent), path.name, read)

    def of(self, signed: SignedBy) -> dict[str, str]:
        """Return the secrets of a sender that are there, by name."""
        in_file = {} if self._file is None else self._file.value()
        named = {name: in_file.get(name) or self._environment.get(name) for name in signed.secrets}
        return {name: secret for name, secret in named.items() if secret}

    def missing(self, app: App) -> Iterator[str]:
        """Yield a sentence for each path that no secret is there for."""
        for route in app.routes:
            if route.signed is not None and not self.of(route.signed):
                yield (
                    f"{route.verb} {route.path} takes signed webhooks, and the secret {' or '.join(route.signed.secrets)} "
                    f"is missing: add a line NAME=… to the file that the setting {_SETTING} names, or set the variable in the "
                    "environment"
                )


def check_webhooks(app: App, settings: GatewayConfig) -> None:
    """Check that there is a secret for each path that takes webhooks.

    Raises:
        ConfigError: A secret is missing, or the file cannot be used.
    """
    if settings.secrets != NOT_SET and not settings.secrets.exists():
        raise ConfigError(f"{_SETTING} = {settings.secrets}: the file does not exist")
    for sentence in WebhookSecrets(settings).missing(app):
        raise ConfigError(sentence)


class WebhookSender:
    """The sender of the webhooks of one path."""

    def __init__(
        self, route: Route, secrets: WebhookSecrets, clock: Callable[[], float] = time.time
    ) -> None:
        """Serve a path that has `signed`.

        Args:
            clock: Seconds since the Unix epoch.
        """
        assert route.signed is not None, "the caller has looked"
        self._route = route
        self._signed = route.signed
        self._secrets = secrets
        self._clock = clock
        self._target = f"{route.entity}.{route.method}" if route.entity else route.method

    def identify(
        self, path: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[Principal, str]:
        """Return the sender of a request as a principal, and the id of the event.

        Args:
            path: The values of the names in the path.
            headers: The headers by name in lower case.

        Raises:
            Unauthenticated: The signature is wrong.
            OperationalError: The secret is missing.
        """
        secrets = self._secrets.of(self._signed)
        if not secrets:
            raise OperationalError(
                "this path has no secret for its webhooks; an operator must set one"
            )
        try:
            event_id = check_signature(
                self._signed.form, secrets, headers, body, self._clock(), self._signed.tolerance_s
            )
        except ConfigError as error:
            _log.error("a webhook cannot be checked", extra={"cause": str(error)})
            raise OperationalError(
                "a secret of this path has a wrong form; the gateway's log names it"
            ) from error
        # Two senders may give the same id, and so may the senders behind two values in the path: each has ids of its own.
        places = [quote(path[name], safe="").replace("~", "%7E") for name in self._route.names]
        name = ":".join(["webhook", self._target, *places])
        return Principal(name, frozenset({Scope(f"call:{self._target}")}), name), event_id
