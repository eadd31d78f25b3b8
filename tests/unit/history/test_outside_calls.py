"""Looking back reaches nothing outside: no call is made again, and the request that made it is named."""

import gc
import io
import shutil
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import httpx
import msgspec
import pytest

from penstock.cli.main import execute
from penstock.history import audit_hook as hook
from tests.gateway_thread import RunningGateway
from tests.history import Call, journal_of

pytestmark = pytest.mark.long

REACHING = str(Path(__file__).parent / "outside_calls_app.py")
SOCKETS = ["connect", "connect_and_hide", "ask", "connect_in_a_thread", "connect_in_a_loop"]
FILES = ["start", "shell", "fork", "spawn", "write", "replace", "remove"]
CONNECTING = '        socket.create_connection(("127.0.0.1", port)).close()'
METHODS = [*SOCKETS, *FILES]
SOME = ["connect", "connect_and_hide", "start", "write"]
LOOKS = {
    "trace": ["trace", "REQUEST"],
    "replay": ["replay", "--from", "EPOCH", "--to", "EPOCH"],
    "what-if": ["what-if", "--from", "EPOCH", "--to", "EPOCH"],
    "history": ["history", "Caller", "METHOD", "--from", "EPOCH", "--to", "EPOCH"],
}


class Listener:
    """Counts connections that the kernel has taken for it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0)
        self.port = self._socket.getsockname()[1]

    def count(self) -> int:
        """Return how many came since it was asked last."""
        count = 0
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return count
            connection.close()
            count += 1

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(autouse=True)
def open_sockets() -> Iterator[None]:
    """Close the sockets that a handler left open when it was refused their use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    """Give a listener on this machine."""
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, listener: Listener) -> Path:
    """Give a journal in which each method has run once, in an epoch of its own."""
    data = tmp_path_factory.mktemp("reaching")
    path = data / "told.txt"
    path.touch()
    epochs: list[list[Call]] = [[("Caller", method, "create", ()) for method in METHODS]]
    for method in METHODS:
        where = listener.port if method in SOCKETS else str(path)
        epochs.append([("Caller", method, method, (where,))])
    journal_of(REACHING, data / "data", epochs)
    assert listener.count() == len(SOCKETS)
    assert not path.exists()
    return data


def looked(look: str, method: str, data: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    number = METHODS.index(method)
    names = {"REQUEST": request_of(method), "EPOCH": str(number + 1), "METHOD": method}
    words = [names.get(word, word) for word in LOOKS[look]]
    code = execute([*words, REACHING, "--data", str(data / "data"), "--json"])
    out, err = capsys.readouterr()
    assert code == (1 if look == "replay" else 0), err
    return msgspec.json.decode(out)


def request_of(method: str) -> str:
    return f"r{len(METHODS) + METHODS.index(method)}"


def calls_in(found: Any) -> list[tuple[str, str]]:
    if "divergence" not in found:
        return [(one["request_id"], f"{one['what']} ({one['where']})") for one in found["outside"]]
    verdict = found["divergence"]["verdict"]
    assert verdict["causes"] == ["outside call"]
    return [(found["divergence"]["request_id"], line) for line in verdict["lines"]]


@pytest.mark.parametrize(
    ("look", "method"),
    [
        *(("trace", method) for method in METHODS),
        *((look, method) for look in list(LOOKS)[1:] for method in SOME),
    ],
)
def test_no_look_back_repeats_a_call(
    data: Path, listener: Listener, capsys: pytest.CaptureFixture[str], look: str, method: str
) -> None:
    """Connections, processes and changes of files are refused, and named with request and line."""
    path = data / "told.txt"
    path.write_text("as it was")
    told = calls_in(looked(look, method, data, capsys))
    assert listener.count() == 0
    assert path.read_text() == "as it was"
    assert [request_id for request_id, _ in told] == [request_of(method)]
    assert "history/outside_calls_app.py:" in told[0][1]


def test_call_is_named_by_host_and_port(
    data: Path, listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a person, too, each command says which call was refused, and where it is written."""
    line = 1 + Path(REACHING).read_text().splitlines().index(CONNECTING)
    told = f"the handler opened a connection to 127.0.0.1:{listener.port} (history/outside_calls_app.py:{line})"
    for words in (
        ("trace", request_of("connect")),
        ("replay", "--from", "1", "--to", "1"),
        ("what-if", "--from", "1", "--to", "1"),
        ("history", "Caller", "connect"),
    ):
        execute([*words, REACHING, "--data", str(data / "data")])
        assert told in capsys.readouterr().out, words
    assert listener.count() == 0


def test_earlier_request_of_the_epoch_is_named(
    tmp_path: Path, listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace that stands on a request which was not run again says so."""
    calls: list[Call] = [
        ("Caller", "a", "create", ()),
        ("Caller", "a", "connect", (listener.port,)),
    ]
    journal_of(REACHING, tmp_path / "data", [[*calls, ("Caller", "a", "count", ())]])
    assert listener.count() == 1
    assert execute(["trace", "r2", REACHING, "--data", str(tmp_path / "data"), "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [one["request_id"] for one in found["outside"]] == ["r1"]
    assert not found["as_recorded"]
    assert execute(["trace", "r2", REACHING, "--data", str(tmp_path / "data")]) == 0
    assert (
        "differs from the recorded one, since calls to the outside were refused"
        in capsys.readouterr().out
    )


def test_imports_are_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A handler may import a module while it is replayed; its bytecode is not written."""
    (tmp_path / "this_is_read.py").write_text("NUMBER = 7")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    calls: list[Call] = [("Caller", "a", "create", ()), ("Caller", "a", "read", ())]
    journal_of(REACHING, tmp_path / "data", [calls])
    del sys.modules["this_is_read"]
    shutil.rmtree(tmp_path / "__pycache__")
    assert execute(["replay", REACHING, "--data", str(tmp_path / "data")]) == 0, capsys.readouterr()
    assert not (tmp_path / "__pycache__").exists()
    assert not sys.dont_write_bytecode


def test_debugger_refuses_calls_too(
    data: Path,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Going on from the prompt of `--break` repeats no call either."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("p port\nc\n"))
    words = ["replay", REACHING, "--data", str(data / "data"), "--break", request_of("connect")]
    assert execute(words) == 0
    out = capsys.readouterr().out
    assert str(listener.port) in out
    assert '"outside-call"' in out
    assert listener.count() == 0


def test_thread_of_the_application_stays_isolated(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of one command, a thread of the application is refused calls after it, too."""
    monkeypatch.setattr(hook, "_until_exit", [True])
    monkeypatch.setattr(hook, "_others", WeakSet())
    done, told = threading.Event(), list[str]()

    def send() -> None:
        done.wait()
        try:
            socket.create_connection(("127.0.0.1", listener.port)).close()
        except PermissionError as error:
            told.append(str(error))

    thread = threading.Thread(target=send)
    thread.start()
    hook.enter(told.append)
    hook.leave()
    socket.create_connection(("127.0.0.1", listener.port)).close()
    done.set()
    thread.join()
    assert listener.count() == 1
    assert told == [
        f"a thread opened a connection to 127.0.0.1:{listener.port}; a rerun refuses such calls"
    ]


def test_trace_over_http_repeats_no_call(tmp_path: Path, listener: Listener) -> None:
    """A gateway passes on the call that was refused."""
    with (
        RunningGateway(REACHING, tmp_path) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        client.timeout = httpx.Timeout(60.0)
        client.post("/call/Caller/a/create", json=[])
        asked = client.post(
            "/call/Caller/a/connect", json=[listener.port], headers={"Idempotency-Key": "asked"}
        )
        assert asked.json() == 1
        assert listener.count() == 1
        found = client.get("/requests/asked/trace").json()
        assert found["outside"][0]["what"] == f"opened a connection to 127.0.0.1:{listener.port}"
        assert listener.count() == 0
