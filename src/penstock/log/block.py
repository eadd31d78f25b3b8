"""Blocks: how records lie in the embedded log's file, and how damage to them is found.

A block holds consecutive records of one commit. It promises that whatever `unpack` returns are
the bytes that `pack` was given: one digest covers the block's records, another their
prints, and a checksum of each record
(over position, request id, body, time and touches) names the damaged one when the digest does not
fit. Where blocks are kept, and which records there are, is left to others.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import msgspec
import numpy as np
import xxhash

from penstock.base.ids import Lsn, RequestId
from penstock.errors import Corrupt
from penstock.log.api import Entry, Record

BLOCK_BYTES: Final = 262_144
"""A block ends with the record that crosses a multiple of this many encoded bytes."""

ID_HASH_BYTES: Final = 16
BODY_HASH_BYTES: Final = 8
DEDUP_HASH_BYTES: Final = ID_HASH_BYTES + BODY_HASH_BYTES

_ARRAY_OF_32_BIT_LENGTH: Final = b"\xdd"
_HEAD_BYTES: Final = 5
_SHAPE: Final = np.dtype([("length", "<u4"), ("body_bytes", "<u4"), ("checksum", "<u8")])
_ENCODER: Final = msgspec.msgpack.Encoder()


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A record as stored, of which only `touches` is wanted; the rest is skipped unread."""

    lsn: Lsn
    request_id: msgspec.Raw
    body: msgspec.Raw
    time_us: int
    touches: bytes


# Record's fields lead the stored array, so that it decodes without an intermediate; msgspec
# ignores what trails.
_RECORDS: Final = msgspec.msgpack.Decoder(list[Record])
_TOUCHED: Final = msgspec.msgpack.Decoder(list[Touched])


class Block(NamedTuple):
    """One row of the log's file. The order of the fields is the order of its columns."""

    first: int
    records: int
    appended_s: int
    prints_digest: bytes
    prints: bytes  # for each record, what request ids are deduplicated by
    digest: bytes
    shape: bytes  # for each record: encoded length, body length, checksum
    data: bytes  # MessagePack array of the records

    @property
    def end(self) -> Lsn:
        """The position after the last record."""
        return Lsn(self.first + self.records)


class DedupHashes(NamedTuple):
    """The part of a block that outlives its truncation."""

    first: int
    records: int
    appended_s: int
    prints_digest: bytes
    prints: bytes


def id_hash_of(request_id: RequestId, seed: int) -> bytes:
    """Hash a request id to 128 bits; `seed` is the file's own, so none can be guessed to clash."""
    return xxhash.xxh3_128_digest(request_id.encode(), seed)


def body_hash_of(body: bytes, seed: int) -> bytes:
    """Hash a body to 64 bits, to tell a repeated request from another one with its id."""
    return xxhash.xxh3_64_digest(body, seed)


def pack(
    first: Lsn, entries: Sequence[Entry], prints: Sequence[bytes], appended_s: int
) -> Iterator[Block]:
    """Yield blocks that hold the entries at positions from `first` on."""
    assert len(entries) == len(prints), "every entry has its print"
    if not entries:
        return
    encode = _ENCODER.encode
    items = [
        encode((lsn, one.request_id, one.body, one.time_us, one.touches))
        for lsn, one in enumerate(entries, first)
    ]
    shape = np.empty(len(items), _SHAPE)
    shape["length"] = np.fromiter(map(len, items), np.uint32, len(items))
    shape["body_bytes"] = [len(one.body) for one in entries]
    shape["checksum"] = np.fromiter(
        map(xxhash.xxh3_64_intdigest, items, repeat(0)), np.uint64, len(items)
    )
    filled = np.cumsum(shape["length"], dtype=np.int64) // BLOCK_BYTES
    bounds = [0, *(np.flatnonzero(np.diff(filled)) + 1).tolist(), len(items)]
    for low, high in pairwise(bounds):
        count = high - low
        data = b"".join([_array_head(count), *items[low:high]])
        block = Block(
            first=first + low,
            records=count,
            appended_s=appended_s,
            prints_digest=b"",
            prints=b"".join(prints[low:high]),
            digest=b"",
            shape=shape[low:high].tobytes(),
            data=data,
        )
        yield block._replace(
            prints_digest=dedup_digest_of(DedupHashes._make(block[:5])), digest=_digest_of(block)
        )


def _digest_of(block: Block) -> bytes:
    head = _ENCODER.encode((block.first, block.records))
    return xxhash.xxh3_128_digest(b"".join((head, block.shape, block.data)))


def dedup_digest_of(prints: DedupHashes) -> bytes:
    """Return the checksum of prints, whatever theirs says."""
    head = (prints.first, prints.records, prints.appended_s)
    return xxhash.xxh3_128_digest(_ENCODER.encode(head) + prints.prints)


def verify(block: Block, file: str) -> None:
    """Check the records of a block: every byte of `shape` and `data`.

    Raises:
        Corrupt: The digest does not fit; names the file and the first damaged record.
    """
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


def verify_dedup_hashes(prints: DedupHashes, file: str) -> None:
    """Check the hashes that request ids are deduplicated by.

    Raises:
        Corrupt: The digest does not fit; names the file and the records.
    """
    if dedup_digest_of(prints) != prints.prints_digest:
        raise Corrupt(
            f"{file}: checksum does not fit at lsn {prints.first}, in the request ids of "
            f"{prints.records} records; restore the file from a backup"
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


def records_of(held: Sequence[Block]) -> list[Record]:
    """Decode the records of verified blocks."""
    return _RECORDS.decode(_array_of(held))


def touches_of(held: Sequence[Block]) -> list[bytes]:
    """Decode the touches of verified blocks' records."""
    return [one.touches for one in _TOUCHED.decode(_array_of(held))]


def _array_of(held: Sequence[Block]) -> bytes:
    """Join blocks to one array: to decode each of many small ones would cost more."""
    count = sum(block.records for block in held)
    return b"".join([_array_head(count), *[block.data[_HEAD_BYTES:] for block in held]])


def _array_head(count: int) -> bytes:
    return _ARRAY_OF_32_BIT_LENGTH + count.to_bytes(4, "big")


def body_sizes_of(block: Block) -> list[int]:
    """Return the body length of each record of a verified block, in bytes."""
    sizes: list[int] = np.frombuffer(block.shape, _SHAPE)["body_bytes"].tolist()
    return sizes
