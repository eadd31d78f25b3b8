"""The processes of an application with views, as `penstock run` has them but for Spark: a test may stop and kill each of them."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock.base.ids import Lsn
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.process import presence
from penstock.process.config import TargetSettings
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import folder_of
from penstock.views.applier import Applier
from penstock.views.targets import open_target
from tests.differential.inline import ONLY, Inline
from tests.forked import processes
from tests.gateway_thread import RunningGateway


@contextmanager
def feeding(spec: str, data: Path, name: str, url: str = "") -> Iterator[int]:
    """Feed a view in a process, and kill it at the end; yields the number of the process.

    Args:
        spec: The application.
        url: The setting `views.NAME.url`.
    """
    with _running(_feed, spec, data, name, url) as pid:
        yield pid


@contextmanager
def driving(spec: str, data: Path) -> Iterator[int]:
    """Run a driver without Spark in a process, and kill it at the end; yields the number of the process."""
    with _running(_drive, spec, data) as pid:
        yield pid


@contextmanager
def serving(spec: str, data: Path, **urls: str) -> Iterator[str]:
    """Run a gateway in a process, and kill it at the end; yields its URL.

    Args:
        urls: The setting `views.NAME.url` of views that have one.
    """
    ours, theirs = multiprocessing.Pipe()
    with _running(_serve, spec, data, urls, theirs):
        assert ours.poll(60), "the gateway does not start"
        yield ours.recv()


@contextmanager
def deployed(spec: str, data: Path, **urls: str) -> Iterator[str]:
    """Deploy an application into a new directory, and run its driver, its views and a gateway; yields the URL.

    Args:
        urls: The setting `views.NAME.url` of views that have one.
    """
    app = load_app(spec)
    directory = DataDirectory(data)
    directory.create("")
    with closing(directory.open_journal(app)) as journal:
        journal.deploy()
        deploy(data, spec, app, journal)
    with ExitStack() as stack:
        stack.enter_context(driving(spec, data))
        for name in app.views:
            stack.enter_context(feeding(spec, data, name, urls.get(name, "")))
        yield stack.enter_context(serving(spec, data, **urls))


@contextmanager
def _running(work: Callable[..., None], *arguments: Any) -> Iterator[int]:
    process = processes().Process(target=work, args=arguments)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def _feed(spec: str, data: Path, name: str, url: str) -> None:
    app = load_app(spec)
    folder = folder_of(data, name)
    folder.mkdir(parents=True, exist_ok=True)
    opener = partial(open_target, url=url, folder=folder)
    with closing(DataDirectory(data).open_journal(app)) as journal:
        Applier(app, data, name, journal, opener).run(threading.Event())


def _drive(spec: str, data: Path) -> None:
    data.mkdir(parents=True, exist_ok=True)
    runtime = Inline(data, 1, spec, load_app(spec).name)
    with presence.present(data, "driver", spec):
        while True:
            last = runtime.journal.last()
            position = Lsn(0) if last is None else last.positions[ONLY]
            end = runtime.log.wait(position, 50)
            if end > position:
                runtime.advance(end)


def _serve(spec: str, data: Path, urls: dict[str, str], told: Connection) -> None:
    views = {name: TargetSettings(url) for name, url in urls.items()}
    with RunningGateway(spec, data, drives=False, views=views) as gateway:
        told.send(gateway.url)
        threading.Event().wait()
