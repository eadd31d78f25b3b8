"""A view with a query that does not end: `python -m tests.faults.asking_process DATA` is there to be killed."""

import sys
import threading
from contextlib import closing
from pathlib import Path

from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.gallery_app import Written, app

if __name__ == "__main__":
    journal = MemoryJournal()
    Written(journal).painters({1: "Ada"})
    with closing(View(Path(sys.argv[1]), app, journal, ViewConfig(memory_mb=64))) as view:
        view.start(spare=True)
        endless = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"
        thread = threading.Thread(target=view.ask, args=[Query(endless, timeout_ms=600_000)])
        thread.start()
        # The first query may take the first spare child; the end of a query makes the view fork the next one.
        view.ask(Query("SELECT 1"))
        sys.stdout.write("asked\n")
        sys.stdout.flush()
        thread.join()
