"""Control records: records of the log that change the system itself, each at its place in the order.

The body of a control record is a request without an entity, whose method is a `$` and the tag of the control, and
whose only argument is the control. No function can have such a name. A control record runs no handler: the driver
executes it between two epochs of requests.
"""

from typing import Final, Literal

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import RequestError
from penstock.model.catch_up import is_catch_up
from penstock.model.index import name_in
from penstock.model.request import Request, decode_request, encode_request, is_continuation
from penstock.model.table_scan import is_scan
from penstock.model.waiting_effect import is_settlement


class DeployedCode(msgspec.Struct, frozen=True):
    """The code of a deployment.

    Attributes:
        archive: The name of the archive with its source: the SHA-256 of the archive.
        libraries: The versions of the libraries that the source imports, by the name of their distribution.
        sources: For a set of applications: the hash of the source of each, by its module and name, `stock:app`.
    """

    archive: str
    module: str
    name: str
    python: str
    libraries: dict[str, str]
    sources: dict[str, str] = {}


class Prepared(msgspec.Struct, frozen=True):
    """Rows of new indexes that are in the state before their code is in force; see `Prepare`.

    Attributes:
        build: The id of the build.
        steps: The number of its parts.
        deployment: The number of the deployment that was in force when the build began.
        epoch: The rows are those of the entities after this epoch.
        places: The indexes; see `Index.place`.
        files: The names of the files that have the row and the entry of each entity, by bucket; see
            `deployment.prepared_indexes`.
        later: Those of the files with the entities that have changed since; a later file counts.
    """

    build: str
    steps: int
    deployment: int
    epoch: Epoch
    places: tuple[str, ...]
    files: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


class Prepare(msgspec.Struct, frozen=True, tag="prepare", tag_field="control"):
    """Put a part of the rows of new indexes into the state. They mean nothing before the deployment that names the build.

    Without places, it removes rows that no code in force reads.

    Attributes:
        build: The id of the build; for a removal, that of the build that ends, or empty: rows that are being removed already.
        places: The indexes; see `Index.place`.
        step: The number of the part, from 1. 0 begins the build, and removes some rows of an earlier one.
        piece: The name of the file with the rows (`journal.staged`); empty for the step 0.
    """

    build: str
    places: tuple[str, ...]
    step: int = 0
    piece: str = ""


class Deploy(msgspec.Struct, frozen=True, tag="deploy", tag_field="control"):
    """Let all later records run with this code.

    Attributes:
        dropped: The stored classes that the code may lack.
        by: The principal that has ordered the deployment; empty for a command on the machine.
        prepared: The rows of its new indexes, as far as they are in the state; the epoch corrects them, or builds all rows.
    """

    code: DeployedCode
    dropped: tuple[str, ...] = ()
    by: str = ""
    prepared: Prepared | None = None


class Move(msgspec.Struct, frozen=True, omit_defaults=True, tag="move", tag_field="control"):
    """Let all later epochs use this number of partitions: their buckets move to stores of the new number.

    Attributes:
        why: The reason; empty for an operator's order without one.
    """

    partitions: int
    why: str = ""


class Erase(msgspec.Struct, frozen=True, tag="erase", tag_field="control"):
    """Delete a person, and destroy the key of its data.

    Attributes:
        subject: The entity, such as `User/ada`.
        generation: How often it was erased before.
    """

    subject: str
    generation: int


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe", tag_field="control"):
    """Let a workflow take the atoms of its source, and those that it has missed.

    Attributes:
        start: The first atom that it takes; see `penstock.flow`.
    """

    flow: str
    stream: str
    start: str | int


class Import(msgspec.Struct, frozen=True, tag="import", tag_field="control"):
    """Put rows into a class, all of them or none.

    Attributes:
        entity: The stored name of the class.
        tag: The tag of the shape that the rows have.
        pieces: The names of the files with the rows (`journal.staged`), in order.
        rows: The number of the rows.
        existing: The treatment of a row whose entity exists.
        by: The principal that has ordered it; empty for a command on the machine.
    """

    entity: str
    tag: int
    pieces: tuple[str, ...]
    rows: int
    existing: Literal["refuse", "replace", "update", "skip"] = "refuse"
    by: str = ""


Control = Deploy | Prepare | Move | Erase | Subscribe | Import
"""Every control."""


def files_of(control: Control) -> tuple[str, ...]:
    """Return the names of the staged files that a control record needs; see `journal.staged`."""
    match control:
        case Import(pieces=pieces):
            return pieces
        case Prepare(piece=piece) if piece:
            return (piece,)
        case Deploy(prepared=Prepared(files=files, later=later)):
            return files + later
        case _:
            return ()


_HEAD: Final = b"\x95\xa0\xc0"
"""The first bytes of a request without an entity and without a key: an array of five, an empty text, nil."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Control])


def encode_control(control: Control) -> bytes:
    """Return the body of a control record."""
    method = f"${type(control).__struct_config__.tag}"
    arguments = msgspec.Raw(_ENCODER.encode((control,)))
    return encode_request(Request("", None, method, arguments, msgspec.Raw(b"\x80")))


def is_control(body: bytes) -> bool:
    """Say whether a body is that of a control record."""
    return (
        body[:3] == _HEAD
        and body[4:5] == b"$"
        and not is_continuation(body)
        and not is_catch_up(body)
        and not is_scan(body)
        and not is_settlement(body)
    )


def control_text(body: bytes) -> str:
    """Return a control record as text: `a deployment of shop (archive 3f2a91c07b55)`, or its name and its values."""
    try:
        control = decode_control(body)
    except RequestError as error:
        return f"an invalid control record ({error})"
    if isinstance(control, Deploy):
        return f"a deployment of {control.code.module} (archive {control.code.archive[:12]})"
    if isinstance(control, Prepare):
        names = ", ".join(map(name_in, control.places))
        return f"part {control.step} of the rows of {names}" if names else "a removal of index rows"
    if isinstance(control, Import):
        return f"an import of {control.rows} rows into {control.entity}"
    values = [f"{name}={value!r}" for name, value in msgspec.structs.asdict(control).items()]
    return " ".join(["control record", type(control).__name__.lower(), *values])


def decode_control(body: bytes) -> Control:
    """Read the body of a control record.

    Raises:
        RequestError: This version of Penstock does not know the control.
    """
    request = decode_request(body)
    try:
        (control,) = _DECODER.decode(request.positional)
    except msgspec.MsgspecError as error:
        raise RequestError(
            f"{request.method} is no control record that this version of Penstock knows: {error}"
        ) from error
    return control
