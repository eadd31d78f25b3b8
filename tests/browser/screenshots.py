"""Takes the pictures of docs/CONSOLE.md, a box office with some load, and of docs/TUTORIAL.md, its café.

`scripts/screenshots` runs this program. It needs the headless shell of Chromium, and neither Spark nor a network.

    scripts/screenshots                       every picture, into docs/console and docs/tutorial
    scripts/screenshots --only sql            pictures of the console whose names begin with `sql`
    scripts/screenshots --only tutorial       that of the tutorial
    scripts/screenshots --directory DIRECTORY
"""

import argparse
import base64
import itertools
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from selenium import webdriver

from tests.browser.page import Page, chromium
from tests.browser.running import RunningConsole
from tests.checkout import TOP
from tests.docs.test_tutorial import BLOCK, PAGE, work_through
from tests.history import journal_of
from tests.modules import own_modules
from tests.views.processes import deployed
from tests.waiting import meanwhile, wait_for

APP: Final = str(TOP / "examples" / "boxoffice")
PICTURES: Final = TOP / "docs" / "console"
TUTORIAL: Final = TOP / "docs" / "tutorial"
BYTES_MAX: Final = 150_000
WIDE: Final = (1280, 860)
NARROW: Final = (360, 740)
LOW: Final = (1280, 640)
PAUSE_S: Final = 0.04
CALLS_FIRST: Final = 150
CUSTOMERS: Final = ("ada", "grace", "edsger", "barbara", "tony")
SHOWS: Final = (("hamlet", "Hamlet", "24.50"), ("macbeth", "Macbeth", "18.00"))
SEATS: Final = [f"{row}{number}" for row in "ABCDEFGH" for number in range(1, 13)]
QUERY: Final = (
    "SELECT owner, count(*) AS tickets, sum(paid) AS paid FROM Ticket GROUP BY 1 ORDER BY 3 DESC"
)


class Picture(NamedTuple):
    """One picture: the place of its page, and the condition for the picture."""

    name: str
    place: str
    ready: Callable[[Page], object]
    size: tuple[int, int] = WIDE


def run_query(page: Page) -> None:
    """Write a query, and wait for its rows."""
    page.write("Query", QUERY)
    page.press("Run")
    page.until("#answer", "row")


def show_differences(page: Page) -> None:
    """Open the differences of the newest deployment."""
    page.click("#deployments details summary")
    page.until("#deployments .findings", "give_back")
    page.browser.execute_script("document.activeElement.blur()")


def shown(selector: str) -> Callable[[Page], object]:
    """Return the step that waits until an element is shown."""
    return lambda page: page.one(selector)


PAGES: Final = (
    Picture("overview", "/overview", shown('#health[data-level="good"]')),
    Picture("overview-narrow", "/overview", shown('#health[data-level="good"]'), NARROW),
    Picture("performance", "/performance", shown(".chart .line")),
    Picture("entities", "/entities/Ticket", shown("#entities tbody tr")),
    Picture("entity", "/entities/Customer/ada", shown("[data-attribute]")),
    Picture("history", "/entities/Customer/ada/history", shown("main table")),
    Picture("sql", "/sql", run_query),
    Picture("requests", "/requests", shown("main tbody tr")),
    Picture("requests-narrow", "/requests", shown("main tbody tr"), NARROW),
    Picture("trace", "/requests/first-purchase/trace", shown("main table, main .trace, main ol")),
    Picture("flow", "/flow", shown("main h2")),
    Picture("deployments", "/deployments", show_differences, (1280, 1200)),
    Picture("try", "/try?path=/call/Show/{key}/hold", shown("form")),
)

CAFE: Final = Picture("sold", "/overview", shown('#health[data-level="good"]'), LOW)
"""The picture of the tutorial, after the sale that is refused."""


def deploy_former(directory: Path) -> None:
    """Let a former version of the box office, without `give_back`, run an epoch."""
    folder = directory / "former" / Path(APP).name
    shutil.copytree(APP, folder)
    show = folder / "show.py"
    text = show.read_text(encoding="utf-8")
    begin, end = text.index("    def give_back"), text.index("    @readonly\n    def free")
    show.write_text(text[:begin] + text[end:], encoding="utf-8")
    with own_modules({folder.name}):
        calls: list[Any] = [[("Customer", "eve", "create", [])]]
        journal_of(str(folder), directory / "data", calls, deploys=True)


def prepare(office: RunningConsole) -> None:
    """Create shows and customers, and buy the tickets that the pictures show."""
    for name, title, price in SHOWS:
        starts = "2031-05-09T19:30:00Z"
        office.call(f"Show/{name}/create", title=title, starts=starts, price=price, seats=SEATS)
    for customer in CUSTOMERS:
        office.call(f"Customer/{customer}/create")
        office.call(f"Customer/{customer}/pay_in", amount="2000.00")
    office.call("Show/hamlet/hold", customer="ada", seats=["A1", "A2"])
    purchase = {"customer": "ada"}
    headers = {"Idempotency-Key": "first-purchase"}
    answer = office.http.post("/call/Show/hamlet/buy", json=purchase, headers=headers)
    assert answer.status_code == 200, answer.text
    office.call("Show/hamlet/give_back", seat="A2")


def calls() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield calls without an end: most of them succeed, and some name a seat that is taken."""
    for turn in itertools.count():
        show = SHOWS[turn % 2][0]
        customer = CUSTOMERS[turn % len(CUSTOMERS)]
        seat = SEATS[(turn * 7) % len(SEATS)]
        yield f"Show/{show}/hold", {"customer": customer, "seats": [seat]}
        if turn % 3 != 0:
            yield f"Show/{show}/buy", {"customer": customer}
        yield f"Customer/{customer}/pay_in", {"amount": "20.00"}
        if turn % 4 == 0:
            yield f"Show/{show}/give_back", {"seat": SEATS[((turn - 2) * 7) % len(SEATS)]}


@contextmanager
def load(office: RunningConsole) -> Iterator[None]:
    """Call the box office until the block ends; begin it after the first calls."""
    warm = threading.Event()

    def run(stop: threading.Event) -> None:
        with httpx.Client(base_url=office.url, timeout=60) as client:
            for number, (path, arguments) in enumerate(calls()):
                client.post(f"/call/{path}", json=arguments)
                if number == CALLS_FIRST:
                    warm.set()
                if stop.wait(PAUSE_S):
                    return

    with meanwhile(run):
        wait_for(warm.is_set, "the first calls")
        yield


def take(page: Page, picture: Picture, directory: Path) -> Path:
    """Open a page, wait until it is complete, and write its picture."""
    width, height = picture.size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.open(picture.place)
    page.one("#now-driver")
    wait_for(lambda: not page.all(".waiting, [aria-busy]"), f"{picture.name} is complete")
    picture.ready(page)
    page.browser.execute_script("window.scrollTo(0, 0)")
    answer = page.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    content = base64.b64decode(answer["data"])
    assert len(content) <= BYTES_MAX, f"{picture.name} has {len(content):,} bytes"
    path = directory / f"{picture.name}.png"
    path.write_bytes(content)
    return path


@contextmanager
def own_browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """Start a browser, and end it with the block."""
    browser = chromium(profile)
    try:
        yield browser
    finally:
        browser.quit()


def take_all(names: str, directory: Path, browser: webdriver.Chrome | None = None) -> list[Path]:
    """Run the box office, and take the pictures whose names begin with `names`, with a browser of its own if none is given."""
    wanted = [picture for picture in PAGES if picture.name.startswith(names)]
    if not wanted:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        deploy_former(Path(temporary))
        office = stack.enter_context(RunningConsole(APP, Path(temporary) / "data", dev=False))
        prepare(office)
        given = browser or stack.enter_context(own_browser(Path(temporary) / "profile"))
        page = Page(given, office.url)
        page.theme("light")
        stack.enter_context(load(office))
        return [take(page, picture, directory) for picture in wanted]


def take_tutorial(directory: Path) -> Path:
    """Work through the tutorial up to its picture, and take it."""
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        blocks = iter(BLOCK.findall(PAGE))
        assert [*work_through(temporary, "", blocks)]
        data = temporary / ".penstock" / "cafe"
        # A driver that obeys deployments
        url = stack.enter_context(deployed(str(temporary / "cafe.py"), data))
        view = [sys.executable, "-m", "penstock", "view", "serve", str(temporary / "cafe.py")]
        served = stack.enter_context(subprocess.Popen([*view, "--data", str(data)]))
        stack.callback(served.terminate)
        page = Page(stack.enter_context(own_browser(temporary / "profile")), url)
        page.theme("light")
        for output in work_through(temporary, url, blocks):
            if "not-enough" in output:
                return take(page, CAFE, directory)
        raise AssertionError("the tutorial has no refused sale")


def main(arguments: Sequence[str] | None = None, browser: webdriver.Chrome | None = None) -> None:
    """Take the pictures that the command line names, and say where they are."""
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description="Take the pictures.")
    parser.add_argument("--only", default="", help="pictures whose names begin like this")
    parser.add_argument("--directory", type=Path, default=PICTURES, help="where to write them")
    options = parser.parse_args(arguments)
    paths = take_all(options.only, options.directory, browser)
    if not options.only or options.only == TUTORIAL.name:
        paths.append(take_tutorial(options.directory.parent / TUTORIAL.name))
    for path in paths:
        print(path)  # noqa: T201 -- the output of a program


if __name__ == "__main__":
    main()
