"""A Delta journal when processes die or race and disks are full (F1, F6, F14)."""

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from deltalake import DeltaTable

from penstock.base.ids import BEFORE_FIRST
from penstock.journal.api import Commit
from penstock.journal.delta import DeltaJournal

PRELUDE = """
import resource, sys
import pyarrow as pa
from penstock.errors import Fenced, JournalUnavailable
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.journal.delta import DeltaJournal

def changes(epoch, count=3):
    row = {"epoch": epoch, "entity": "Item", "key": "i1", "state": b"s"}
    return pa.Table.from_pylist([row] * count, CHANGES)

def say(*words):
    print(*words, flush=True)

path = sys.argv[1]
"""

COMMIT_FOR_EVER = """
journal = DeltaJournal(path, "shop")
last = journal.last()
epoch = 0 if last is None else last.epoch + 1
while True:
    part = journal.write(PartKind.CHANGES, changes(epoch), "0-0")
    journal.commit(Commit(epoch, {0: epoch}, (part,), epoch))
    say(epoch)
    if epoch % 5 == 0:
        journal.checkpoint()
    epoch += 1
"""

RACE = """
journal = DeltaJournal(path, "shop")
say(journal.identity)
sys.stdin.readline()
won, epoch = [], 0
while epoch < 30:
    try:
        journal.commit(Commit(epoch, {0: epoch}, (), int(sys.argv[2])))
        won.append(epoch)
    except Fenced:
        pass
    epoch = journal.last().epoch + 1
say(*won)
"""

FULL_DISK = """
journal = DeltaJournal(path, "shop")
part = journal.write(PartKind.CHANGES, changes(0), "0-0")
free = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, free[1]))
for use in (
    lambda: journal.write(PartKind.CHANGES, changes(0, 1000), "1-0"),
    lambda: journal.commit(Commit(0, {0: 0}, (part,), 0)),
):
    try:
        use()
    except JournalUnavailable as error:
        say(error)
assert journal.last() is None
resource.setrlimit(resource.RLIMIT_FSIZE, free)
journal.commit(Commit(0, {0: 0}, (part,), 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, free[1]))
try:
    journal.checkpoint()
except JournalUnavailable as error:
    say(error)
resource.setrlimit(resource.RLIMIT_FSIZE, free)
journal.checkpoint()
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def history(path: Path) -> list[Commit]:
    return list(DeltaJournal(path, "shop").commits(BEFORE_FIRST))


def test_full_disk_commits_nothing_and_passes(tmp_path: Path) -> None:
    """Without space, write, commit and checkpoint say why and leave nothing; with space, go on."""
    process = start(FULL_DISK, tmp_path)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    for line, doing in zip(
        output.splitlines(), ["write part", "commit epoch 0", "write a checkpoint"], strict=True
    ):
        assert line.startswith(f"cannot {doing}")
        assert line.endswith("File too large")
    assert [one.epoch for one in history(tmp_path)] == [0]
    assert not list((tmp_path / "_delta_log").glob(".*"))
    assert len(list((tmp_path / "kind=changes").iterdir())) == 1


def test_rival_processes_share_creation_and_fence_each_other(tmp_path: Path) -> None:
    """Processes that open at once get one journal, and every epoch has exactly one winner."""
    rivals = [start(RACE, tmp_path / "journal", number) for number in range(3)]
    identities = {one.stdout.readline() for one in rivals if one.stdout is not None}
    outputs = []
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("\n")
        rival.stdin.flush()
    for rival in rivals:
        output, errors = rival.communicate(timeout=300)
        assert (rival.returncode, errors) == (0, "")
        outputs.append([int(word) for word in output.split()])
    assert len(identities) == 1
    assert sorted(epoch for won in outputs for epoch in won) == list(range(30))
    winners = [one.time_us for one in history(tmp_path / "journal")]
    assert all(epoch in outputs[winner] for epoch, winner in enumerate(winners))


def test_killed_driver_loses_no_acknowledged_epoch(tmp_path: Path, seed: int) -> None:
    """After kill -9 at any moment, history has no gap and holds all that was acknowledged."""
    dice = random.Random(seed)
    acknowledged = -1
    for _ in range(5):
        child = start(COMMIT_FOR_EVER, tmp_path)
        assert child.stdout is not None
        for _ in range(dice.randrange(1, 20)):
            acknowledged = int(child.stdout.readline())
        delay = threading.Timer(dice.random() * 0.01, child.send_signal, [signal.SIGKILL])
        delay.start()
        with (
            child
        ):  # also reads the lines that `readline` has buffered, which `communicate` would lose
            acknowledged = max([acknowledged, *(int(line) for line in child.stdout)])
            assert child.stderr is not None
            assert child.stderr.read() == ""
        journal = DeltaJournal(tmp_path, "shop")
        made = list(journal.commits(BEFORE_FIRST))
        assert [one.epoch for one in made] == list(range(len(made)))
        assert len(made) - 1 in (acknowledged, acknowledged + 1)
        assert all(journal.read(part).num_rows == 3 for one in made[-20:] for part in one.parts)
        journal.checkpoint()
        assert DeltaTable(tmp_path).version() == len(made)
