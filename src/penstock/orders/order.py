"""Orders of an operator: how each of them is given, at a data directory or through a gateway.

An order is a struct. Its `carry_out` prepares the work and appends a control record, which takes effect at its place in
the log. It waits for the reply (`settled`) and returns the result, a struct, too. A command and a gateway call the same
`carry_out`; the struct is also the body that a command sends to a gateway. `way` says where an order goes: a gateway
makes the HTTP path of each order in this folder from it. A `Report` has a path, too: it shows the state that an order
changes.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from penstock.base.ids import ONLY_PARTITION, Lsn, RequestId
from penstock.engine.streams.derived_ids import MARK
from penstock.errors import ConfigError, OperationalError, TimedOut
from penstock.journal.api import Journal
from penstock.journal.replies import await_reply
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.control import Control, decode_control, encode_control, is_control
from penstock.model.reply import Reply
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, answer_question, ask_child

WAIT_S: Final = 60.0
"""How long an order waits for the driver, if its command or request does not say."""

R = TypeVar("R", covariant=True)
T = TypeVar("T")


class Place(NamedTuple):
    """The application that an order is about, and where it is carried out.

    Attributes:
        settings: The settings, which name the data directory.
        app: The application; None if the order needs only its data directory.
        by: The principal that orders it through a gateway, or the user; empty for a command on the machine.
        told: Takes the parts that are done, and all parts, of long work; None in a process that serves requests: a
            child process does long work.
    """

    settings: Config
    app: App | None = None
    by: str = ""
    told: Callable[[int, int], None] | None = None

    def directory(self) -> tuple[DataDirectory, str]:
        """Return the data directory, and the name of its application.

        Raises:
            ConfigError: It has no journal.
        """
        directory = DataDirectory(self.settings.data)
        if (name := directory.app_name) is None:
            raise ConfigError(
                f"there is no journal in {self.settings.data}; start the application first, or name its directory "
                "with --data"
            )
        return directory, name

    def loaded(self) -> tuple[App, Config]:
        """Return the application and the settings, for an order whose names are those of the application."""
        assert self.app is not None, "the command loads the application"
        return self.app, self.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[T]):
    """The answer to a `GET` of a path: the state that an order changes. It is a constant of the order's module.

    Attributes:
        name: The id of the operation in the OpenAPI document.
        text: The sentence about the answer in the OpenAPI document.
        at: Returns the answer. The first line of its docstring is the summary in the OpenAPI document.
    """

    path: str
    name: str
    answer: type[T]
    text: str
    at: Callable[[Place], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an order travels, and how the OpenAPI document describes its path.

    The docstring of the order is the text of the path: its first line is the summary, the paragraphs up to `Attributes`
    are the description.

    Attributes:
        noun: The order, for the log output: `an erasure`.
        name: The id of the operation in the OpenAPI document.
        result: The struct of the result.
        text: The sentence about the result in the OpenAPI document.
        example: A body, for the message of a refusal.
        needs_key: Whether a gateway without keys refuses it; otherwise a key needs the scope `admin`, if there are keys.
        work_s: The seconds that a gateway may need in addition to the wait for the driver.
        is_awaited: Whether it waits for the driver. If the driver is late, the order stays in the log.
        waits: Says of a result whether the driver has not executed the order yet; None: a result is complete.
        conflicts: Whether a refusal says that the order does not fit the application, with the status 409.
    """

    noun: str
    path: str
    name: str
    result: Any
    text: str
    example: str
    needs_key: bool = True
    work_s: float = 60.0
    is_awaited: bool = True
    waits: Callable[[Any], bool] | None = None
    conflicts: bool = False


class Order(Protocol[R]):
    """An order; a struct whose JSON is the body of a request to a gateway."""

    way: ClassVar[Way]

    def carry_out(self, place: Place, timeout_s: float) -> R:
        """Do the work, and return the result when it is in force, or when no driver runs.

        Args:
            timeout_s: How long to wait for the driver.

        Raises:
            TimedOut: The order is durable, and no driver has executed it in time.
        """


class _Errand(msgspec.Struct, frozen=True):
    """The question to a child process that carries an order out; `order` is its JSON."""

    settings: Config
    order: bytes
    by: str
    timeout_s: float


def carried_out_apart(
    order: Order[R], place: Place, timeout_s: float, work: str, longest_s: float
) -> R:
    """Carry an order out in a child process, because it takes long, or runs code of a user.

    Args:
        order: The order. Its module, run as a program, calls `carry_out_here`.
        work: The work, for messages: `the copy of the state`.
        longest_s: How long the child may run.

    Raises:
        OperationalError: The child was killed, or has run for too long.
    """
    settings = replace(place.settings, data=place.settings.data.absolute())
    errand = _Errand(settings, msgspec.json.encode(order), place.by, timeout_s)
    try:
        result: R = ask_child(type(order).__module__, errand, order.way.result, longest_s)
    except TimeoutError as error:
        raise OperationalError(f"{work} has taken more than {longest_s:g} s") from error
    except ChildEnded as ended:
        raise OperationalError(
            f"the process of {work} ended with exit code {ended.exit_code}; the order may be in the log: give it again, with "
            "the same id if it has one"
        ) from ended
    return result


def carry_out_here(order_type: type[Order[Any]]) -> None:
    """Answer the question of `carried_out_apart` in a child process."""

    def carry_out(errand: _Errand, _: object) -> Any:
        order = msgspec.json.decode(errand.order, type=order_type)
        place = Place(errand.settings, by=errand.by, told=lambda _done, _all: None)
        return order.carry_out(place, errand.timeout_s)

    answer_question(_Errand, carry_out)


def append_control(log: Log, order: str, number: str, control: Control) -> Lsn:
    """Append a control record durably, and return its position; one whose id the log has is not appended again.

    Args:
        number: The rest of its id; the same order again has the same one, if a repetition is to have no effect.
    """
    request_id = control_id(order, number)
    # The log knows ids: an order that is repeated after a lost answer gets the position of the first one.
    now_us = wall_clock_us()
    return log.append([Entry(request_id, encode_control(control), b"", now_us, is_control=True)])[0]


def control_id(order: str, number: str) -> RequestId:
    """Return the id of a control record: `erase~~5c21`. A caller who could choose it would block the order."""
    return RequestId(f"{order}{MARK}{number}")


def waiting_controls(journal: Journal, log: Log) -> list[Control]:
    """Return the control records in the log that no epoch has executed yet, in order."""
    last = journal.last()
    start = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
    return controls_between(log, start, log.end())


def controls_between(log: Log, start: Lsn, end: Lsn) -> list[Control]:
    """Return the control records in [start, end) of the log, in order."""
    controls = []
    for lsn in log.controls(start, end):
        (record,) = log.read(lsn, Lsn(lsn + 1))
        if is_control(record.body):
            controls.append(decode_control(record.body))
    return controls


def settled(settings: Config, lsn: Lsn, timeout_s: float, what: str) -> Reply:
    """Wait for the reply to a control record.

    Args:
        settings: The settings, which name the data directory.
        timeout_s: How long to wait for the driver.
        what: The order, for the message.

    Raises:
        TimedOut: No driver has executed the record in time; it is durable, and takes effect later.
    """
    directory = DataDirectory(settings.data)
    with closing(directory.open_journal_of(directory.app_name or "")) as journal:
        reply = await_reply(journal, (ONLY_PARTITION, lsn), timeout_s)
    if reply is None:
        raise TimedOut(f"{what} has not taken effect within {timeout_s:g} s; it is {durable(lsn)}")
    return reply


def durable(lsn: int | None = None) -> str:
    """Return the fate of an order that waits, as words of a sentence.

    Args:
        lsn: Its position in the log; None if it is not known.
    """
    place = "in" if lsn is None else f"at position {lsn} of"
    return f"durable {place} the log, and takes effect when a driver runs and reaches it"
