"""The right answers of a benchmark: a reply counts only after it was decoded and is one of these.

A checkout says `Checkout successful`, a transfer tells the balance that is left, and a request that
loads entities returns None. Errors are counted by themselves.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa

from benchmarks.harness.load import Answer
from benchmarks.harness.options import Kind

DONE: Final = "Checkout successful"
_OK: Final = 200
_Left = Annotated[int, msgspec.Meta(ge=0)]
_NOTHING: Final = msgspec.msgpack.Decoder(None)
_SUCCESSES: Final[dict[Kind, msgspec.msgpack.Decoder[Any]]] = {
    "checkout": msgspec.msgpack.Decoder(Literal["Checkout successful"]),
    "transfer": msgspec.msgpack.Decoder(_Left),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """The replies of an epoch.

    Attributes:
        replies: All of them.
        failures: Those that are errors.
        wrong: Those that are neither an error nor the success of their request.
    """

    replies: int
    failures: int
    wrong: int


def count(rows: pa.Table, kind: Kind, loading: int) -> Counts:
    """Decode every reply of an epoch and count its kinds.

    Args:
        rows: `lsn`, `error` and `reply` of its transactions.
        kind: The measured workload.
        loading: Position of the first request that does not load entities.
    """
    decoders = {True: _NOTHING.decode, False: _SUCCESSES[kind].decode}
    failures = wrong = 0
    columns = (rows.column(name).to_pylist() for name in ("lsn", "error", "reply"))
    for lsn, error, reply in zip(*columns, strict=True):
        if error is not None:
            failures += 1
            continue
        try:
            decoders[lsn < loading](reply)
        except msgspec.MsgspecError:
            wrong += 1
    return Counts(rows.num_rows, failures, wrong)


def succeeded(answer: Answer) -> bool:
    """Say whether an answer over HTTP is the success of a checkout, and nothing else."""
    return answer.status == _OK and answer.body.decode(errors="replace") == DONE
