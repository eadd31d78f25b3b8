"""`mail`: a ready-made effect that sends mails over SMTP, with TLS.

A mail cannot be sent exactly once: if the connection breaks behind its last byte, no side knows whether the server has taken it.
All tries of one mail have the same `Message-ID`, by which servers and readers recognise a second copy.
"""

import smtplib
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.effects.http_effects import with_secrets
from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.effect import RUNNING, TIMEOUT, effect_id, marked_effect
from penstock.model.effect import Final as GivenUp
from penstock.model.limit import limit

_PORTS: Final = {"smtps": 465, "smtp": 587, "smtp+plain": 25}
_PERMANENT: Final = 500


@dataclass(frozen=True)
class Mailed:
    """A mail that a server has taken.

    Attributes:
        message_id: Its `Message-ID`.
        refused: The recipients that the server has refused, with its reason; the others get the mail.
    """

    message_id: str
    refused: dict[str, str] = field(default_factory=dict)


def mail(  # noqa: PLR0913 -- the declaration of a side is one call
    name: str,
    url: str,
    *,
    sender: str,
    tries: int | None = None,
    timeout: timedelta = TIMEOUT,
    until: timedelta | None = None,
    once: bool = False,
    limits: Sequence[str] = (),
) -> Callable[..., Mailed]:
    """Declare an effect that sends mails.

    ```python
    post = mail(
        "post",
        "smtps://{SMTP_USER}:{SMTP_PASSWORD}@smtp.example",
        sender="Shop <shop@shop.example>",
    )

    send(post, ["ann@example.org"], "Your order", "It is on its way.")
    ```

    The arguments of the effect are the recipients, the subject, the text, and by name `html`, `copy_to` and `reply_to`. Its
    result is `Mailed`. A reply of 500 and more is a failure for good; other failures
    are tried again.

    Args:
        name: The name of the effect.
        url: The server: `smtps://` speaks TLS from the beginning (port 465), `smtp://` begins it with STARTTLS and demands it
            (587), and `smtp+plain://` is for a server of this machine without TLS (25). `{NAME}` stands for a secret; a secret
            with a special character is written as in any URL, `%40` for `@`.
        sender: The address of the header `From`, with or without a name.
        tries, timeout, until, once: The arguments of `effect`.
        limits: The texts of `limit`.

    Raises:
        DefinitionError: An argument is wrong.
    """
    where = caller_place()
    complaints = []
    if not name.isidentifier():
        complaints.append("the name of an effect is that of a function")
    scheme = url.partition("://")[0]
    if scheme not in _PORTS:
        complaints.append(f"url={url!r} begins with {', '.join(f'{each}://' for each in _PORTS)}")
    if "@" not in parseaddr(sender)[1]:
        complaints.append(f"sender={sender!r} must be an address")
    if complaints:
        raise DefinitionError([f"{where}: {name}: {each}" for each in complaints])

    def call(
        to: list[str],
        subject: str,
        text: str = "",
        *,
        html: str = "",
        copy_to: list[str] | None = None,
        reply_to: str = "",
    ) -> Mailed:
        copies = copy_to or []
        headers = {
            "From": sender,
            "To": ", ".join(to),
            "Cc": ", ".join(copies),
            "Reply-To": reply_to,
            "Subject": subject,
        }
        message = _message(headers, text, html)
        recipients = [parseaddr(each)[1] for each in (*to, *copies)]
        if not recipients or not all("@" in each for each in recipients):
            raise GivenUp("a mail needs recipients, each with an address")
        return _sent(with_secrets(url), timeout.total_seconds(), message, recipients)

    call.__name__ = call.__qualname__ = name
    limited = limit(*limits)(call) if limits else call
    return marked_effect(limited, where, tries, timeout, until, once=once)


def _message(headers: dict[str, str], text: str, html: str) -> EmailMessage:
    """Return a mail; empty headers are left out.

    Raises:
        Final: A header cannot be sent.
    """
    message = EmailMessage(policy=SMTP)
    domain = parseaddr(headers["From"])[1].rpartition("@")[2]
    # Of the time of the send, so that all tries are the same mail.
    sent = datetime.fromtimestamp(RUNNING.get().sent_us / 1e6, UTC)
    try:
        message["Message-ID"] = f"<{effect_id()}@{domain}>"
        message["Date"] = format_datetime(sent)
        for header, value in headers.items():
            if value:
                message[header] = value
        message.set_content(text)
        if html:
            message.add_alternative(html, subtype="html")
    except (ValueError, IndexError) as error:  # a line end in a header, or a wrong address
        raise GivenUp(
            "a header of the mail cannot be sent: it has a line end or a wrong address"
        ) from error
    return message


@lru_cache(1)
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _sent(url: str, timeout_s: float, message: EmailMessage, recipients: Sequence[str]) -> Mailed:
    """Hand a mail to a server.

    Raises:
        Exception: The server does not take it.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        raise GivenUp("the address of the mail server has no host, or another scheme")
    try:
        server = _connected(parts, timeout_s)
        try:
            refused = server.send_message(message, to_addrs=list(recipients))
        finally:
            with suppress(OSError, smtplib.SMTPException):
                server.quit()  # the mail is sent, or its failure is on its way
    except smtplib.SMTPRecipientsRefused as error:
        # All of them; if one reply is for now, so is the failure.
        raise _failure(*min(error.recipients.values()), recipients) from error
    except smtplib.SMTPAuthenticationError as error:
        # An operator can mend it meanwhile.
        text = f"the mail server refuses user and password: {error.smtp_code}"
        raise ConnectionError(text) from error
    except smtplib.SMTPResponseException as error:
        raise _failure(error.smtp_code, error.smtp_error, recipients) from error
    except smtplib.SMTPNotSupportedError as error:  # such as a server without STARTTLS
        raise ConnectionError(f"the mail server: {error}") from error
    reasons = {each: _text(code, reply, recipients) for each, (code, reply) in refused.items()}
    return Mailed(str(message["Message-ID"]), reasons)


def _connected(parts: SplitResult, timeout_s: float) -> smtplib.SMTP:
    """Return a connection on which mails may be sent."""
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=timeout_s, context=_trust())
    else:
        server = smtplib.SMTP(host, port, timeout=timeout_s)
    try:
        if parts.scheme == "smtp":
            server.starttls(context=_trust())
        if parts.username is not None:
            server.login(unquote(parts.username), unquote(parts.password or ""))
    except BaseException:
        server.close()
        raise
    return server


def _failure(code: int, reply: bytes | str, recipients: Iterable[str]) -> Exception:
    """Return the failure that a reply of a server stands for."""
    text = f"the mail server answered {_text(code, reply, recipients)}"
    return GivenUp(text) if code >= _PERMANENT else ConnectionError(text)


def _text(code: int, reply: bytes | str, recipients: Iterable[str]) -> str:
    """Return a reply of a server without the addresses, which are personal."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    for address in recipients:
        text = text.replace(address, "<recipient>")
    return f"{code} {' '.join(text.split())}"
