"""`SearchTarget`: shows the tables of a view in a search index of tantivy, in the folder of the view.

`index/current` names the directory of the index in force. A change is one commit there. A fill makes another directory
beside it, and then replaces `current`, so that readers see the former rows until then, also if the columns have changed. A
writer holds a lock of the folder, and compares the position inside of it. What a writer leaves when it is killed is no
part of a commit; the next fill removes its directory.
"""

import fcntl
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import tantivy
from msgspec.structs import replace

from penstock.files import durable
from penstock.model.target_choice import TargetChoice
from penstock.views.search_fields import (
    FORMAT,
    NO_OWNER,
    OWNER,
    POSITION_OWNER,
    WORDS,
    Contents,
    IndexFields,
    owner_term,
    position_document,
    word_analyzer,
)
from penstock.views.search_index import (
    CURRENT,
    INDEX,
    Panics,
    SearchIndex,
    SearchReading,
    current_directory,
)
from penstock.views.target import (
    Overtaken,
    Position,
    Standing,
    TableChange,
    TableShape,
    TargetProblem,
)

_LOCK: Final = "lock"
_BUFFER_BYTES: Final = 32 << 20
"""The bytes that tantivy may hold in memory before it writes a segment."""

_WAIT_S: Final = 3.0
"""How long a writer waits for another one, which may be merging segments."""
_LOOK_S: Final = 0.02


class SearchTarget:
    """The search index of one view; a `Target`.

    Args:
        folder: The folder of the view.
        choice: The columns for words and for counting.
    """

    def __init__(self, folder: Path, choice: TargetChoice) -> None:
        self._name = folder.name
        self._folder = folder / INDEX
        self._choice = choice
        self._index = SearchIndex(folder)
        self._merging: threading.Thread | None = None

    def position(self) -> Standing:
        """Return the position, and the number of failed rows."""
        contents = self._index.contents()
        if contents is None:
            return Standing(None)
        return Standing(contents.position, self._index.failed())

    def reading(self) -> SearchReading:
        """Return a reading of the newest commit."""
        return self._index.reading()

    def load(
        self,
        before: Position | None,
        after: Position,
        shapes: Sequence[TableShape],
        rows: Iterable[TableChange],
    ) -> None:
        """Replace the index; one that is damaged counts as never filled."""
        with self._locked():
            self._require(before)
            contents = Contents(
                FORMAT, after, tuple(shapes), self._choice.text, self._choice.facets
            )
            self._remove_others()
            directory = self._folder / secrets.token_hex(8)
            try:
                self._fill(directory, contents, rows)
                with self._writing():
                    durable.replace(self._folder / CURRENT, directory.name.encode())
            except BaseException:
                if current_directory(self._folder) != directory:
                    shutil.rmtree(directory, ignore_errors=True)
                raise
            self._remove_others()

    def apply(self, before: Position, after: Position, changes: Sequence[TableChange]) -> None:
        """Change the rows of the touched owners, and the position, in one commit."""
        with self._locked():
            self._require(before)
            index, contents, fields = self._index.writable()
            for change in changes:
                if change.shape not in contents.shapes:
                    raise TargetProblem(
                        f"the search index has no table {change.shape.name} with these columns",
                        f"penstock view rebuild {self._name}",
                    )
            with self._writing():
                writer = self._writer(index)
            with _ending_on_error(writer), self._writing():
                # A commit that was killed may have left a file with the name of one of this commit's.
                writer.garbage_collect_files()
                # The first operation has the number of the last commit. If a killed process has left segments to be
                # merged, their merge begins before this commit and takes operations up to that number: it would apply
                # the first deletion to some segments, and count it as applied to all. So the first one deletes nothing.
                writer.delete_documents_by_term(OWNER, NO_OWNER)
                for change in changes:
                    name = change.shape.name
                    table = fields.tables[name]
                    for owner in change.touched:
                        writer.delete_documents_by_term(OWNER, owner_term(name, owner))
                    for row in change.rows:
                        writer.add_document(table.document(row))
                writer.delete_documents_by_term(OWNER, POSITION_OWNER)
                writer.add_document(position_document(replace(contents, position=after)))
                writer.commit()
            # The commit may have begun to merge segments, which ends before the next commit.
            self._merging = threading.Thread(
                target=_end, args=(writer,), name="penstock-merge", daemon=True
            )
            self._merging.start()

    def purge(self) -> None:
        """Remove former indexes; a fill has written that in force from its first row."""
        with self._locked():
            self._remove_others()
            kept = [each.name for each in self._folder.iterdir() if each.is_dir()]
        if len(kept) > 1:
            raise TargetProblem(
                f"a former index in {self._folder} cannot be removed",
                "give the service the right to write there",
            )

    def drop(self, before: Position) -> None:
        """Remove the index, and its position."""
        with self._locked():
            self._require(before)
            with self._writing():
                (self._folder / CURRENT).unlink()
                durable.sync_directory(self._folder)
            self._remove_others()

    def close(self) -> None:
        """Wait until segments are merged."""
        self._join()

    def _fill(self, directory: Path, contents: Contents, rows: Iterable[TableChange]) -> None:
        fields = IndexFields(contents.shapes, contents.text, contents.facets)
        with self._writing():
            directory.mkdir()
            index = tantivy.Index(fields.schema(), str(directory))
            index.register_tokenizer(WORDS, word_analyzer())
            writer = index.writer(_BUFFER_BYTES, 1)
        with _ending_on_error(writer):
            for change in rows:
                table = fields.tables[change.shape.name]
                with self._writing():
                    for row in change.rows:
                        writer.add_document(table.document(row))
            with self._writing():
                writer.add_document(position_document(contents))
                writer.commit()
                writer.wait_merging_threads()
                durable.sync_directory(directory)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder, which ends with the process."""
        self._join()
        with self._writing():
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _WAIT_S
            while not _take(descriptor):
                if time.monotonic() > until:
                    raise _busy()
                time.sleep(_LOOK_S)
            yield
        finally:
            os.close(descriptor)

    def _require(self, expected: Position | None) -> None:
        try:
            contents = self._index.contents()
        except TargetProblem:
            if expected is not None:
                raise
            contents = None
        if (None if contents is None else contents.position) != expected:
            raise Overtaken

    def _writer(self, index: tantivy.Index) -> tantivy.IndexWriter:
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                return index.writer(_BUFFER_BYTES, 1)
            except ValueError as error:
                # Another process has written, and still merges segments.
                if "LockBusy" not in str(error):
                    raise
            if time.monotonic() > until:
                raise _busy()
            time.sleep(_LOOK_S)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Translate errors of tantivy, and of files."""
        try:
            with Panics(self._name):
                yield
        except (OSError, ValueError) as error:
            raise TargetProblem(f"the search index cannot be written: {error}") from error

    def _join(self) -> None:
        if self._merging is not None:
            self._merging.join()
            self._merging = None

    def _remove_others(self) -> None:
        """Remove directories that are not in force; the caller holds the lock."""
        current = current_directory(self._folder)
        for each in self._folder.iterdir():
            if each.is_dir() and each != current:
                shutil.rmtree(each, ignore_errors=True)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy() -> TargetProblem:
    return TargetProblem("another process writes to the search index, or has stopped while it did")


@contextmanager
def _ending_on_error(writer: tantivy.IndexWriter) -> Iterator[None]:
    """Let a writer go at once when an error leaves the block, because the error may keep it for long."""
    try:
        yield
    except BaseException:
        _end(writer)
        raise


def _end(writer: tantivy.IndexWriter) -> None:
    try:
        writer.wait_merging_threads()
    except ValueError:  # the directory may be gone, because another process has filled another one
        return
