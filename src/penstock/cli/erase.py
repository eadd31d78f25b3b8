"""`penstock erase`: erase a person, or list the certificates of erasures."""

import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.cli.options import DataOptions, JsonOption
from penstock.cli.output import folding_table, print_result, utc_text
from penstock.errors import ConfigError, TimedOut

if TYPE_CHECKING:
    from penstock.journal.api import Journal
    from penstock.model.application import App
    from penstock.process.config import Config
    from penstock.process.erasures import Certificate, Erasures

HELP: Final = """Erase a person: an entity of a class that is declared with personal=True.

From its place in the order on, the entity is deleted. Then the key of its data is destroyed, so that no file, former
epoch or backup shows them any more. This cannot be undone. Requests about the person that are scheduled, or that
arrive with data that were encrypted before, fail with erased. The same key may be used for another person afterwards.

A certificate remains: the entity, the epoch and the time.

\b
Examples:
  penstock erase User/ada library.py --yes
  penstock erase library.py --list
"""

_PAUSE_S: Final = 0.02


def command(
    options: DataOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUBJECT APP",
            help="The entity, and the application if no option or setting names it.",
            show_default=False,
        ),
    ] = None,
    confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show all certificates.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, help="The seconds to wait for the driver.")
    ] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Erase a person, or list the certificates; see `HELP`."""
    subjects, apps = (words or [])[: not listed], (words or [])[not listed :]
    if apps:
        options = replace(options, named=apps[0])
    if (not listed and not subjects) or len(apps) > 1 or not options.settings().app:
        raise ConfigError(
            "write penstock erase SUBJECT APP, or APP with --list; --app or a setting may name the application in "
            "place of APP"
        )
    from penstock.process.data_directory import DataDirectory
    from penstock.process.erasures import Erasures

    application, settings = options.load()
    with closing(DataDirectory(settings.data).open_journal(application)) as journal:
        erasures = Erasures(settings.data)
        if listed:
            last = journal.last()
            every = erasures.every(BEFORE_FIRST if last is None else last.epoch)
            print_result(every, lambda console: _show(every, console), as_json=as_json)
            return
        made = _erase(application, settings, journal, subjects[0], timeout_s, confirmed=confirmed)
    line = f"{made.subject} is erased from epoch {made.epoch} on; certificate {made.hash}"
    print_result(made, lambda console: console.print(line, soft_wrap=True), as_json=as_json)


def _erase(
    app: "App",
    settings: "Config",
    journal: "Journal",
    text: str,
    timeout_s: float,
    *,
    confirmed: bool,
) -> "Certificate":
    """Append the control record, and return its certificate when the key is destroyed.

    Args:
        app: The application.
        settings: Its settings.
        journal: Its journal.
        text: The subject.
        timeout_s: How long to wait for the driver.
        confirmed: Whether to ask nothing.

    Raises:
        RequestError: The text names no entity of a personal class, or the entity was erased meanwhile.
        TimedOut: No driver has executed the erasure in time.
    """
    from penstock.base.ids import ONLY_PARTITION
    from penstock.journal.tail import JournalTail
    from penstock.process.data_directory import DataDirectory
    from penstock.process.erasures import Certificate, Erasures, request_erasure, subject_named

    subject, erasures = subject_named(app, text), Erasures(settings.data)
    generation = erasures.generation(subject)
    if not confirmed:
        typer.confirm(f"Erase {subject}? This cannot be undone.", abort=True, err=True)
    with closing(DataDirectory(settings.data).open_log(settings)) as log:
        lsn = request_erasure(log, subject, generation)
    deadline = time.monotonic() + timeout_s
    with closing(JournalTail(journal)) as tail:
        try:
            reply = tail.wait((ONLY_PARTITION, lsn), int(timeout_s * 1_000))
        except TimedOut:
            raise TimedOut(
                f"no driver has erased {subject} within {timeout_s:g} s; the order is durable at position {lsn} and "
                f"waits for: penstock run {settings.app}"
            ) from None
    made: Certificate = reply.value(Certificate)
    _await_destruction(erasures, made, deadline)
    return made


def _await_destruction(erasures: "Erasures", made: "Certificate", deadline: float) -> None:
    """Wait until the key of a certificate is destroyed, which the driver does after the commit.

    Raises:
        TimedOut: The driver has not destroyed the key in time.
    """
    while not erasures.is_complete(made):
        if time.monotonic() > deadline:
            raise TimedOut(
                f"{made.subject} is deleted from epoch {made.epoch} on, and its key is not destroyed yet; the driver "
                "destroys it when it starts: penstock run"
            )
        time.sleep(_PAUSE_S)


def _show(every: list["Certificate"], console: Console) -> None:
    table = folding_table("subject", "epoch", "erased", "certificate")
    for certificate in every:
        epoch, erased = str(Epoch(certificate.epoch)), utc_text(certificate.time_us)
        table.add_row(certificate.subject, epoch, erased, certificate.hash)
    console.print(table)
