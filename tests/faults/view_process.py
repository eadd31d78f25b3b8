"""A view that is killed while it applies: `python view_process.py DATA` never ends by itself."""

import sys
from contextlib import closing
from pathlib import Path

from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.sql_view.view import View
from tests.unit.sql_view.gallery_app import app

if __name__ == "__main__":
    data = Path(sys.argv[1])
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        view = View(data, app, journal, ViewConfig(memory_mb=256))
        view.start()
        while True:
            view.await_epoch(view.journal_epoch(), 0.05)
            sys.stdout.write(f"{view.epoch}\n")
            sys.stdout.flush()
