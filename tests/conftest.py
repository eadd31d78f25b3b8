"""The suite's own options, and the same process settings for every test, however the suite starts.

Seeds: a plain run is the same every time; `--seed` explores, and says how to run it again.
"""

import atexit
import gc
import os
import random
import resource
import signal
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    max_examples=50,  # the same ones each time, so that more of them find little; `--seed` explores
)
hypothesis.settings.register_profile("explore", deadline=None, database=None, print_blob=True)

for checks in ("tests.streams.case_runs", "tests.streams.cases"):  # so that they show the values
    pytest.register_assert_rewrite(checks)

pytest_plugins = ["tests.postgres_server"]

SEED = pytest.StashKey[int]()
TOGETHER = ("tests/browser/", "tests/spark/")
"""Folders whose tests run in one process: they share a browser and an application, or the Java of Spark."""

UNIT = "tests/unit/"

AUTHORITIES = os.environ.get("SSL_CERT_FILE") or str(Path("certifi", "cacert.pem"))
"""The end of the path of the certificates that httpx trusts. A test's own certificate is in another file."""

T = TypeVar("T")

_unfreeze = gc.unfreeze
_read_trust = ssl.create_default_context


def _trust(*purpose: Any, **sources: Any) -> ssl.SSLContext:
    """Do what `ssl.create_default_context` does, but read the certificates of httpx once.

    Each of its clients reads all 140, also for a plain address: 30 ms of a processor, for hundreds of clients.
    """
    authorities = str(sources.get("cafile"))
    if not purpose and authorities.endswith(AUTHORITIES):
        return _trust_in(authorities)
    return _read_trust(*purpose, **sources)


@cache
def _trust_in(file: str) -> ssl.SSLContext:
    return _read_trust(cafile=file)


ssl.create_default_context = _trust


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed`, `--turns` and `--whole`."""
    parser.addoption(
        "--seed",
        metavar="NUMBER|fresh",
        help="seed of the randomised tests: a number to repeat a run, 'fresh' for a new one",
    )
    parser.addoption(
        "--turns",
        action="store_true",
        help="of trials that take turns, run those that the change concerns, and some that its commit chooses",
    )
    parser.addoption(
        "--whole",
        action="store_true",
        help="run all cases of a campaign; else the commit's hash chooses some of them",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a file to one process, and a folder of `TOGETHER` to one."""
    scheduling: Any = import_module("xdist.scheduler").LoadFileScheduling  # not every run has it

    class Scheduling(scheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # hypothesis reads its own option in the same hook
def pytest_configure(config: pytest.Config) -> None:
    """Choose the profile, and hand hypothesis the seed."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts `scripts/test &` so
        signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted: str | None = config.getoption("--seed")
    if wanted is None:
        config.stash[SEED] = 0
        hypothesis.settings.load_profile("fixed")
        return
    if wanted != "fresh" and not wanted.isdecimal():
        raise pytest.UsageError(f"--seed takes a number or 'fresh', not {wanted!r}")
    seed = random.SystemRandom().getrandbits(32) if wanted == "fresh" else int(wanted)
    config.stash[SEED] = seed
    config.option.hypothesis_seed = str(seed)
    hypothesis.settings.load_profile("explore")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the files whose tests are quick behind all others, so that the processes of pytest-xdist end together."""

    def is_quick(item: pytest.Item) -> bool:
        module = item.getparent(pytest.Module)
        return (
            item.nodeid.startswith(UNIT)
            and module is not None
            and not module.get_closest_marker("long")
        )

    items.sort(key=is_quick)
    if config.getoption("--turns"):
        _take_turns(config, items)


def _take_turns(config: pytest.Config, items: list[pytest.Item]) -> None:
    change = import_module("tests.change")  # few runs need it, and all import this file
    trials = {
        item: change.Trial(
            item.nodeid,
            mark.kwargs.get("of", item.nodeid.partition("[")[0]),
            mark.args[0],
            tuple(f"src/penstock/{room}" for room in mark.args[1:]),
        )
        for item in items
        if (mark := item.get_closest_marker("turns"))
    }
    chosen = change.whose_turn_it_is(change.change_of(change.TOP), trials.values())
    left_out = [item for item, trial in trials.items() if trial.name not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in trials or trials[item].name in chosen]


def pytest_collection() -> None:
    """Collect no garbage while modules are imported and tests are found: nearly all of it stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let collections of garbage pass over the modules of all tests, of which each process has some hundred thousand objects."""
    # The garbage that there is among them stays, too: to look for it takes a tenth of a collection of tests.
    gc.freeze()
    gc.enable()
    if hasattr(
        session.config, "workerinput"
    ):  # of many tests, and many fork; for a few it would take longer than it saves
        # A fork copies the 66,000 entries of this process in the tables of pages; of large pages there are 113.
        # Several workers ask at the same time, on two cores.
        import_module("penstock.process.large_pages").collapse(most_s=60.0)
    # A command that thaws what it froze would thaw all this, too: 0.3 s for each collection from then on.
    gc.unfreeze = _stay_frozen
    # DuckDB complains about what Python has not freed at its end. Not earlier: pytest collects five times when it ends.
    atexit.register(_unfreeze)


def _stay_frozen() -> None:
    """Take the place of `gc.unfreeze`, so that garbage in what a test has frozen stays until the process ends."""


@pytest.fixture
def thawing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `gc.unfreeze` work in a test of it."""
    monkeypatch.setattr(gc, "unfreeze", _unfreeze)
    yield
    gc.freeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how to repeat an exploring run; a header would be hidden by `-q`."""
    if config.getoption("--seed") is not None:
        terminalreporter.write_line(f"repeat this run with --seed {config.stash[SEED]}")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Give the run's seed to a randomised test of our own."""
    return request.config.stash[SEED]


@pytest.fixture(scope="session")
def part_of(request: pytest.FixtureRequest) -> Callable[[Sequence[T], int], list[T]]:
    """Give a function that takes so many cases of a campaign, in their order; all of them with `--whole`."""
    change = import_module("tests.change")  # few tests need it, and all import this file
    commit = change.commit_of(change.TOP)

    def chosen(cases: Sequence[T], number: int) -> list[T]:
        if request.config.getoption("--whole"):
            return list(cases)
        taken: list[T] = change.part_of(cases, number, commit)
        return taken

    return chosen


@pytest.fixture
def large_numbers() -> Iterator[None]:
    """Give new files numbers of 1,024 and more, as in a process with many connections; `select.select` refuses those."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4_096), hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1_024:
        held.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for number in held:
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the children that answer a question of this process; to start Python for each takes most of their time."""
    forked = import_module("tests.forked")  # few tests need it, and all import this file
    monkeypatch.setattr("penstock.process.question.run_child", forked.child)


@pytest.fixture(scope="session")
def lent_servers(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Give servers that run already, by the names of the fixtures which they replace, if a plugin lends some."""
    plugin: Any = request.config.pluginmanager.get_plugin("tests.cluster.far_servers")
    return {} if plugin is None else plugin.lent(request.config)


@pytest.fixture(scope="session")
def store_server(
    tmp_path_factory: pytest.TempPathFactory, lent_servers: dict[str, Any]
) -> Iterator[Any]:
    """Start an object store; where nothing can build one, skip the tests that need it, but fail if CI is set."""
    if "store_server" in lent_servers:
        yield lent_servers["store_server"]
        return
    module = import_module("tests.object_store")  # few tests need it, and all import this file
    try:
        server = module.StoreServer(tmp_path_factory.mktemp("store"))
    except module.StoreMissing as error:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(error))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def kafka_server(
    tmp_path_factory: pytest.TempPathFactory, lent_servers: dict[str, Any]
) -> Iterator[Any]:
    """Lend the one Kafka of the run; where nothing can fetch it, skip the tests that need it, but fail if CI is set."""
    if "kafka_server" in lent_servers:
        yield lent_servers["kafka_server"]
        return
    module = import_module("tests.kafka_server")
    base = tmp_path_factory.getbasetemp()
    shared = (
        base.parent if base.name.startswith(("process", "popen")) else base
    )  # one of several processes
    try:
        with module.shared_by(shared) as broker:
            yield broker
    except module.KafkaMissing as error:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(error))


@pytest.fixture
def kafka_hosts(kafka_server: Any, tmp_path: Path) -> Any:
    """Hosts with logs in Kafka, whose topics no other test uses."""
    name = f"{tmp_path.parent.name}-{tmp_path.name}"
    return import_module("tests.kafka_hosts").KafkaHosts(kafka_server, tmp_path / "hosts", name)
