"""Appliers of views in threads of a test, as their processes run them."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from penstock import App
from penstock.files.layout import RUN
from penstock.process.data_directory import DataDirectory
from penstock.process.presence import Announcement, presence_of_this
from penstock.process.view_files import ROLE, folder_of
from penstock.views.applier import Applier
from penstock.views.targets import open_target


@contextmanager
def appliers(
    app: App, data: Path, *names: str, urls: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Feed views until the block ends.

    Args:
        names: The views; none: all views of the application.
        urls: The addresses of targets outside of the data directory.
    """
    stop = threading.Event()
    with ExitStack() as stack:
        for name in names or app.views:
            folder = folder_of(data, name)
            folder.mkdir(parents=True, exist_ok=True)
            journal = stack.enter_context(closing(DataDirectory(data).open_journal(app)))
            opener = partial(open_target, url=(urls or {}).get(name, ""), folder=folder)
            feeding = Applier(app, data, name, journal, opener)
            thread = threading.Thread(target=feeding.run, args=(stop,))
            thread.start()
            stack.callback(thread.join)
            presence = data / RUN / f"{ROLE}-{name}.json"
            presence.parent.mkdir(exist_ok=True)
            Announcement(presence, presence_of_this(ROLE, app.name, {"view": name}))
            stack.callback(presence.unlink, missing_ok=True)
        stack.callback(stop.set)
        yield
