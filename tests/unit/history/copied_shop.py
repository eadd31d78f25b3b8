"""A shop with a history, for tests of its copies."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from penstock.base.ids import Epoch, LogPartition, RequestId
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from penstock.engine.replay import Replayer
from penstock.history.reader import HistoryReader
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal
from penstock.journal.replies import find_reply
from penstock.log.api import Entry
from penstock.process.data_directory import DataDirectory
from penstock.state.digest import digest_of_mapping
from tests.checkout import SHOP
from tests.history import Call, journal_of

TINY = CompactionPolicy(newest=1, epochs=2, grace_s=0)
CREATED: list[list[Call]] = [[("Item", "i1", "create", {"price": 3, "stock": 10})]]
EPOCHS: list[list[Call]] = [
    *CREATED,
    [("Item", "i1", "add", (5,)), ("Item", "absent", "add", (1,))],
    [("Item", "i1", "subtract", (2,)), ("User", "u1", "create", {"credit": 20})],
    [("User", "u1", "pay", (6,)), ("Item", "i1", "add", (1,))],
    [("Item", "i1", "delete", ())],
]


def digest_at(data: Path, epoch: int) -> str:
    with HistoryReader(data, load_app(SHOP)) as past:
        return digest_of_mapping(past.state_before(Epoch(epoch + 1)))


def digests_replayed(data: Path) -> list[str]:
    """Return the digest after each epoch of running all requests again, from nothing."""
    app = load_app(SHOP)
    replayer = Replayer(app, {}, Limits())
    digests = []
    with HistoryReader(data, app) as past:
        for recorded in past.epochs(Epoch(0), past.last):
            replayer.run_all(recorded.rows)
            replayer.finish()
            digests.append(digest_of_mapping(replayer.state))
    return digests


def made(data: Path, epochs: Sequence[Sequence[Call]] = EPOCHS) -> Path:
    journal_of(SHOP, data, epochs)
    return data


def add(data: Path, request_id: str) -> None:
    """Append a request that no driver processes."""
    app = load_app(SHOP)
    body, hint = app.request("Item", "i1", "add", (1,), {})
    with closing(DataDirectory(data).open_log()) as log:
        log.append([Entry(RequestId(request_id), body, hint, 1)])


def replies(data: Path) -> list[tuple[str, str | None, bytes | None]]:
    """Return every reply that the log's ids lead to, as a client that asks again gets them."""
    found: list[tuple[str, str | None, bytes | None]] = []
    with (
        closing(DataDirectory(data).open_log()) as log,
        closing(DeltaJournal(data / "journal", "shop")) as journal,
    ):
        newest = journal.last()
        assert newest is not None
        for lsn in range(newest.positions[LogPartition(0)]):
            place = log.find(RequestId(f"r{lsn}"))
            assert place == (0, lsn)
            reply = find_reply(journal, place)
            found.append((reply.request_id, reply.error, reply.data))
    return found
