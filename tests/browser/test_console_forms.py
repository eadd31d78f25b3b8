"""The forms of requests: references, times, nested values, the shown request, and errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.waiting import wait_for

APP = str(Path(__file__).parent / "trip_app.py")
NARROW = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
PICK = (
    "arguments[0].value = arguments[1];"
    "arguments[0].dispatchEvent(new Event('change', {bubbles: true}))"
)


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """Run the application with arguments of every shape."""
    with RunningConsole(APP, tmp_path_factory.mktemp("trips") / "data") as running:
        for name in ("Adler", "Krone", "Post"):
            running.call(f"Hotel/{name}/create")
        for trip in ("north", "south"):
            running.call(f"Trip/{trip}/create")
        yield running


@pytest.fixture
def form(browser: webdriver.Chrome, trips: RunningConsole) -> Iterator[Page]:
    """Return the form of `Trip.plan` in a browser that lives in New York."""
    page = Page(browser, trips.url)
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/New_York"})
    page.open("/try?path=/call/Trip/{key}/plan&key=north")
    page.labelled("leaves")
    page.complaints()
    yield page
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def sent(page: Page) -> dict[str, object]:
    """Return the body that the form shows."""
    body: dict[str, object] = json.loads(page.text("#sent pre").partition("\n")[2])
    return body


def pick(page: Page, label: str, value: str) -> None:
    """Choose a value as the browser's picker of days and times does."""
    page.browser.execute_script(PICK, page.labelled(label), value)


def choose_hotel(page: Page, part: str, name: str) -> None:
    """Type a part of a key, and choose the suggested key."""
    page.labelled("hotel").send_keys(part)
    page.until(".suggestions:not([hidden])", name)
    assert page.labelled("hotel").get_attribute("aria-expanded") == "true"
    page.keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert page.labelled("hotel").get_attribute("value") == name


def test_nested_values_are_sent_as_they_are_shown(form: Page, trips: RunningConsole) -> None:
    """Groups, lists, references, choices and times make the JSON that is shown, and it is sent."""
    pick(form, "leaves", "2026-12-01T08:15:00")
    assert "America/New_York" in form.text(".try")
    form.press("Add to nights")
    pick(form, "day", "2026-12-02")
    choose_hotel(form, "ost", "Post")
    form.choose("board (optional)", "full")
    form.choose("stars", "4")
    form.press("Add contact")
    form.write("name", "Ada")
    pick(form, "call_at (optional)", "09:30")
    form.press("Add prices")
    form.labelled("value").send_keys("12.50")
    expected = {
        "leaves": "2026-12-01T13:15:00Z",
        "nights": [{"day": "2026-12-02", "hotel": "Post", "board": "full"}],
        "stars": 4,
        "contact": {"name": "Ada", "call_at": "09:30:00"},
        "prices": {"": "12.50"},
        "insured": False,
    }
    assert sent(form) == expected
    form.press("Write it as JSON")
    assert json.loads(str(form.labelled("Body as JSON").get_property("value"))) == expected
    form.press("Back to the fields")
    form.press("Send")
    form.until("#answer .status", "200")
    trip = trips.http.get("/entities/Trip/north").json()
    assert trip["leaves"] == "2026-12-01T13:15:00Z"
    assert trip["nights"] == [{"day": "2026-12-02", "hotel": "Post", "board": "full"}]
    assert (trip["price"], trip["contact"]["phones"]) == ("12.50", [])
    assert form.complaints() == []


def test_key_of_the_called_entity_is_suggested(form: Page) -> None:
    """The key in the path is chosen among the entities of the class."""
    form.labelled("key").clear()
    form.labelled("key").send_keys("sou")
    form.until(".suggestions:not([hidden])", "south")
    form.keys(Keys.ARROW_DOWN, Keys.TAB)
    assert form.text("#sent pre").startswith("POST /call/Trip/south/plan")


def test_missing_value_is_named_at_its_field(form: Page) -> None:
    """Nothing is sent; each field has its error, and the first of them has the focus."""
    form.press("Add to nights")
    form.press("Send")
    form.until("#answer .problem", "nights[0].day is needed")
    leaves = form.labelled("leaves")
    assert form.browser.switch_to.active_element == leaves
    assert leaves.get_attribute("aria-invalid") == "true"
    message = leaves.get_attribute("aria-errormessage")
    assert form.text(f"[id='{message}']") == "is needed"
    form.press("Remove")
    pick(form, "leaves", "2026-12-01T08:15:00")
    assert sent(form)["nights"] == []
    form.press("Send")
    form.until("#answer .status", "200")
    assert not form.labelled("leaves").get_attribute("aria-invalid")


def test_refusal_of_the_gateway_is_shown_at_its_field(
    browser: webdriver.Chrome, trips: RunningConsole
) -> None:
    """The gateway's message stands below the input that it names."""
    page = Page(browser, trips.url)
    page.open("/try?path=/call/Hotel/{key}/create&key=Grand")
    page.write("rooms (optional)", "99999999999999999999999")
    page.press("Send")
    page.until("#answer .status", "400")
    rooms = page.labelled("rooms (optional)")
    wait_for(lambda: rooms.get_attribute("aria-invalid") == "true", "the mark")
    message = rooms.get_attribute("aria-errormessage")
    assert "Hotel.create: rooms" in page.text(f"[id='{message}']")
    assert browser.switch_to.active_element == rooms


def test_append_is_sent_by_its_form(browser: webdriver.Chrome, trips: RunningConsole) -> None:
    """A stream has a form for its events; the answer is their number, and a refusal stands at its field."""
    page = Page(browser, trips.url)
    page.open("/try?path=/streams/nights&verb=post")
    page.press("Write it as JSON")
    page.write("Body as JSON", '[{"day": "2026-12-01", "hotel": "Adler"}]')
    page.press("Send")
    page.until("#answer .status", "200")
    page.write("Body as JSON", '[{"day": "tomorrow", "hotel": "Adler"}]')
    page.press("Send")
    page.until("#answer", "stream nights: events[0].day")


@pytest.mark.parametrize("key", ['a/b 100% "x"\n?q=1#f', "שלום\0\u202e <b>"])
def test_any_key_and_any_text_come_through_a_form(
    browser: webdriver.Chrome, trips: RunningConsole, key: str
) -> None:
    """A link to the form keeps each character of the key, ends of lines too; a text has lines, and -0.0 its sign."""
    trips.call(f"Note/{quote(key, safe='')}/create")
    page = Page(browser, trips.url)
    page.open(f"/entities/Note/{quote(key, safe='')}")
    page.press("write")
    page.labelled("text").send_keys("first\n  second")
    page.write("weight", "-0.0")
    page.press("Send")
    page.until("#answer .status", "200 succeeded")
    assert page.text("#answer .answer pre") == "-0.0"
    page.open(f"/entities/Note/{quote(key, safe='')}")
    assert page.one("[data-attribute=text]").text == "first\n  second"
    assert page.one("[data-attribute=weight]").text == "-0.0"
    shown = key.replace("\0", "\\u0000").replace("\u202e", "\\u202e")
    assert page.one("[data-attribute=note_id]").text == shown
    page.open("/try?path=/call/Note/../write")
    page.until(".sent", "key cannot be . or ..")


def test_form_fits_a_narrow_window(form: Page) -> None:
    """At 360 pixels, a form with nested groups does not scroll sideways."""
    form.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
    try:
        form.press("Add to nights")
        form.press("Add contact")
        form.press("Add prices")
        assert form.browser.execute_script(OVERFLOW) == 0
    finally:
        form.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
