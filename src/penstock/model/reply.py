"""The interface of every runtime: it takes requests and returns replies.

`LocalRuntime` and `SparkRuntime` do not know each other; they share only this module.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from penstock import errors
from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.base.misfit import misfit_of
from penstock.base.stored_type import decode_stored
from penstock.model.application import App
from penstock.model.call import Call, Calling, returns_of
from penstock.model.request import Failure, decode_failure


@dataclass(frozen=True, slots=True)
class Reply:
    """The recorded answer to a request.

    Attributes:
        error: None if the transaction took effect, else the stable code of the failure.
        data: MessagePack: the value, or the failure.
        cause: The exception that left the handler, where that ran in this process; never recorded.
    """

    request_id: RequestId
    lsn: Lsn
    epoch: Epoch
    error: str | None
    data: bytes
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    def value(self, returns: Any = Any) -> Any:
        """Return the result as `returns` says."""
        if self.error is None:
            return decode_result(self.data, returns)
        raise raised_by(decode_failure(self.data)) from self.cause


def decode_result(data: bytes, returns: Any) -> Any:
    """Return the result of a request as `returns` says.

    Raises:
        Unencodable: It does not fit the type.
    """
    try:
        return decode_stored(data, returns)
    except msgspec.ValidationError as error:
        raise unfit_result(error, returns) from error


def unfit_result(error: msgspec.ValidationError, returns: Any) -> errors.Unencodable:
    """Return the error about a result that cannot be read as `returns` says."""
    misfit = misfit_of(str(error)).explained(returns)
    return errors.Unencodable(
        f"the request is done, but its result does not fit the annotation of its handler{misfit.at('')}; "
        "correct the annotation, or the result"
    )


class Runtime(Protocol):
    """Takes a request and answers it."""

    @property
    def app(self) -> App:
        """The application that runs."""

    def submit(self, call: Call[Any]) -> Reply:
        """Append a call as a request and wait for its reply."""


def failure_of(error: errors.PenstockError) -> Failure:
    """Return an error in the form that passes between processes."""
    return Failure(error.code, type(error).__name__, str(error))


def raised_by(failure: Failure) -> errors.PenstockError:
    """Return the error that a failure describes; `Aborted` stands for exceptions of user code."""
    cls = errors.BY_CODE.get(failure.code, errors.Aborted)
    error = cls.__new__(cls)
    error.code, error.kind = failure.code, failure.kind
    is_named = failure.kind == cls.__name__
    Exception.__init__(error, failure.message if is_named else f"{failure.kind}: {failure.message}")
    return error


def caller_of(runtime: Runtime) -> Calling:
    """Return a `Calling` that performs its calls on a runtime."""

    def perform(call: Call[Any]) -> Any:
        return runtime.submit(call).value(returns_of(runtime.app, call))

    return Calling(runtime.app, perform)
