"""The page on appends is true: its client and its commands append to the first program of the pages on streams."""

from pathlib import Path

from tests.checkout import TOP
from tests.docs.test_howto_pages import BLOCK, run
from tests.docs.test_pages import snippets
from tests.gateway_thread import RunningGateway

FIRST_PROGRAM = "docs/STREAMS.md"
APPENDS = "docs/streams/appends.md"


def test_appends_of_the_page_run(tmp_path: Path) -> None:
    """The program and the commands of the page succeed, and the commands print the numbers of events."""
    first = snippets(FIRST_PROGRAM)[0]
    (tmp_path / "words.py").write_text(first)
    served = tmp_path / "served_words.py"  # a module of this process, whose name stays taken
    served.write_text(first)
    with RunningGateway(str(served), tmp_path / "data") as gateway:
        address = gateway.url.removeprefix("http://")
        printed = [
            run(
                language,
                text.replace("127.0.0.1:8000", address).replace("localhost:8000", address),
                tmp_path,
            )
            for language, text in BLOCK.findall((TOP / APPENDS).read_text())
        ]
    assert printed[0] == ""
    assert printed[1].startswith("22Appended 1 event to stream lines"), printed[1]
