"""Blocks: the layout of records in the embedded log's file, and the detection of damage.

A block holds consecutive records of one commit. `verify` guarantees that a block's records are the
bytes that `pack` was given. One digest covers the records, another the hashes that request ids are
deduplicated by. If the first digest does not fit, a checksum of each record (over position, request
id, body, time and hint) tells which record is damaged. The caller stores the blocks.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import msgspec
import numpy as np
import xxhash

from penstock.base.ids import Lsn, RequestId
from penstock.errors import Corrupt
from penstock.log.api import Entry, Record
from penstock.model.request import call_in

BLOCK_BYTES: Final = 262_144
"""A block ends with the record that crosses a multiple of this many encoded bytes."""

ID_HASH_BYTES: Final = 16
BODY_HASH_BYTES: Final = 8
DEDUP_HASH_BYTES: Final = ID_HASH_BYTES + BODY_HASH_BYTES

_ARRAY_OF_32_BIT_LENGTH: Final = b"\xdd"
_HEAD_BYTES: Final = 5
_SHAPE: Final = np.dtype([("length", "<u4"), ("body_bytes", "<u4"), ("checksum", "<u8")])
_PACKED_SHAPE: Final = struct.Struct("<IIQ").pack
_CONTROL: Final = 0x8000_0000
"""This bit of `body_bytes` marks a control record; no body is so long."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class Touched(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored record of which only `hint` is decoded; the other fields stay raw."""

    lsn: Lsn
    request_id: msgspec.Raw
    body: msgspec.Raw
    time_us: int
    hint: bytes


# The fields of `Record` come first in the stored array, so that a record is decoded without an
# intermediate object; msgspec ignores further elements.
_RECORDS: Final = msgspec.msgpack.Decoder(list[Record])
_TOUCHED: Final = msgspec.msgpack.Decoder(list[Touched])


class DedupHashes(NamedTuple):
    """The part of a block that outlives the truncation of its records."""

    first: int
    records: int
    appended_s: int
    digest: bytes
    hashes: bytes  # for each record, the hash of its id and the hash of its call, up to 0.2.0 of its whole body


class Block(NamedTuple):
    """One row of the table `block`. The order of the fields is the order of its columns."""

    first: int
    records: int
    appended_s: int
    dedup_digest: bytes
    dedup_hashes: bytes
    digest: bytes
    shape: bytes  # for each record: encoded length, body length and mark, checksum (`_SHAPE`)
    data: bytes  # MessagePack array of the records

    @property
    def end(self) -> Lsn:
        """The position after the last record."""
        return Lsn(self.first + self.records)

    @property
    def dedup(self) -> DedupHashes:
        """The first five fields."""
        return DedupHashes._make(self[:5])


def id_hash_of(request_id: RequestId, seed: int) -> bytes:
    """Hash a request id to 128 bits; each file has its own seed, so that no clash can be guessed."""
    return xxhash.xxh3_128_digest(request_id.encode(), seed)


def id_hashes_of(request_ids: Iterable[RequestId], seed: int) -> list[bytes]:
    """Hash request ids, as `id_hash_of` does."""
    return [*map(xxhash.xxh3_128_digest, map(str.encode, request_ids), repeat(seed))]


def body_hashes_of(bodies: Iterable[bytes], seed: int) -> list[bytes]:
    """Hash the calls in bodies to 64 bits, to tell a repeated request from another request with its id."""
    return [*map(xxhash.xxh3_64_digest, map(call_in, bodies), repeat(seed))]


def whole_body_hashes_of(bodies: Iterable[bytes], seed: int) -> list[bytes]:
    """Hash whole bodies as versions up to 0.2.0 did, with the rights of the caller.

    Files keep these hashes: `body_hashes_of` gives the same ones for bodies without rights, and other ones with them.
    """
    return [*map(xxhash.xxh3_64_digest, bodies, repeat(seed))]


def pack(
    first: Lsn, entries: Sequence[Entry], dedup_hashes: Sequence[bytes], appended_s: int
) -> Iterator[Block]:
    """Yield blocks of entries.

    Args:
        first: The position of the first entry.
        dedup_hashes: For each entry, the hash of its id and the hash of its body, joined.
        appended_s: Seconds since the Unix epoch.
    """
    assert len(entries) == len(dedup_hashes), "every entry has its hashes"
    if not entries:
        return
    encode = _ENCODER.encode
    items = [
        encode((lsn, entry.request_id, entry.body, entry.time_us, entry.hint))
        for lsn, entry in enumerate(entries, first)
    ]
    lengths = [*map(len, items)]
    marked = [len(entry.body) | (_CONTROL if entry.is_control else 0) for entry in entries]
    checksums = map(xxhash.xxh3_64_intdigest, items, repeat(0))
    # Without an array: most appends have a few records, and to make one takes longer than all else here.
    shape = [*map(_PACKED_SHAPE, lengths, marked, checksums)]
    inner: list[int] = []
    if sum(lengths) >= BLOCK_BYTES:
        # A block ends where the running total passes a multiple of BLOCK_BYTES.
        multiples = np.cumsum(lengths, dtype=np.int64) // BLOCK_BYTES
        inner = (np.flatnonzero(np.diff(multiples)) + 1).tolist()
    bounds = [0, *inner, len(items)]
    for low, high in pairwise(bounds):
        count = high - low
        data = b"".join([_array_head(count), *items[low:high]])
        hashes = b"".join(dedup_hashes[low:high])
        unsigned = Block(
            first + low, count, appended_s, b"", hashes, b"", b"".join(shape[low:high]), data
        )
        yield unsigned._replace(
            dedup_digest=dedup_digest_of(unsigned.dedup), digest=_digest_of(unsigned)
        )


def _digest_of(block: Block) -> bytes:
    head = _ENCODER.encode((block.first, block.records))
    return xxhash.xxh3_128_digest(b"".join((head, block.shape, block.data)))


def dedup_digest_of(dedup: DedupHashes) -> bytes:
    """Return the digest that fits some hashes; their field `digest` is ignored."""
    head = (dedup.first, dedup.records, dedup.appended_s)
    return xxhash.xxh3_128_digest(_ENCODER.encode(head) + dedup.hashes)


def verify(block: Block, file: str) -> None:
    """Check the records of a block: every byte of `shape` and `data`."""
    if _digest_of(block) == block.digest:
        return
    damaged = _first_damaged(block)
    if damaged is None:
        place = f"in the frame of the records [{block.first}, {block.end})"
    else:
        place = f"at lsn {damaged}"
    raise Corrupt(
        f"{file}: checksum does not fit {place}; restore the file from a backup: a log record "
        "can be rebuilt from nothing else"
    )


def verify_dedup_hashes(dedup: DedupHashes, file: str) -> None:
    """Check the hashes that request ids are deduplicated by."""
    if dedup_digest_of(dedup) != dedup.digest:
        raise Corrupt(
            f"{file}: checksum does not fit at lsn {dedup.first}, in the request ids of "
            f"{dedup.records} records; restore the file from a backup"
        )


def _first_damaged(block: Block) -> Lsn | None:
    """Return the position of the first record whose checksum fails; None when all fit."""
    shape = np.frombuffer(block.shape, _SHAPE, len(block.shape) // _SHAPE.itemsize)
    offset = _HEAD_BYTES
    for lsn, (length, _, checksum) in enumerate(shape.tolist(), block.first):
        if xxhash.xxh3_64_intdigest(block.data[offset : offset + length], 0) != checksum:
            return Lsn(lsn)
        offset += length
    return None


def records_of(verified: Sequence[Block]) -> list[Record]:
    """Decode the records of verified blocks."""
    return _RECORDS.decode(_joined(verified))


def hints_of(verified: Sequence[Block]) -> list[bytes]:
    """Decode the hints of verified blocks' records."""
    return [record.hint for record in _TOUCHED.decode(_joined(verified))]


def _joined(verified: Sequence[Block]) -> bytes:
    """Join blocks to one array; decoding each of many small blocks would cost more."""
    count = sum(block.records for block in verified)
    return b"".join([_array_head(count), *[block.data[_HEAD_BYTES:] for block in verified]])


def _array_head(count: int) -> bytes:
    return _ARRAY_OF_32_BIT_LENGTH + count.to_bytes(4, "big")


def body_sizes_of(block: Block) -> list[int]:
    """Return the body length of each record of a verified block, in bytes."""
    sizes: list[int] = (np.frombuffer(block.shape, _SHAPE)["body_bytes"] & (_CONTROL - 1)).tolist()
    return sizes


def controls_of(first: int, shape: bytes) -> list[Lsn]:
    """Return the positions of the control records in a block, from its columns `first` and `shape`."""
    marked = np.flatnonzero(np.frombuffer(shape, _SHAPE)["body_bytes"] & _CONTROL)
    return [Lsn(first + place) for place in marked.tolist()]


def checksum_at(first: int, shape: bytes, lsn: Lsn) -> int:
    """Return the checksum of a record in a block, from its columns `first` and `shape`."""
    return int(np.frombuffer(shape, _SHAPE)["checksum"][lsn - first])
