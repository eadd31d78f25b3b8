"""The pictures of the console's page in the documentation."""

import re
from pathlib import Path

import pytest
from selenium import webdriver

from tests.browser import screenshots
from tests.checkout import TOP

PNG = b"\x89PNG\r\n\x1a\n"


def test_page_shows_every_picture_once() -> None:
    """The page of the console names the pictures that the program takes, and each of them is small."""
    page = (TOP / "docs" / "CONSOLE.md").read_text()
    named = re.findall(r'(?:\]\(|src=")console/([\w-]+)\.png', page)
    assert sorted(named) == sorted(picture.name for picture in screenshots.PAGES)
    files = list(screenshots.PICTURES.iterdir())
    assert sorted(file.stem for file in files) == sorted(named)
    assert all(file.stat().st_size <= screenshots.BYTES_MAX for file in files)
    (picture,) = screenshots.TUTORIAL.iterdir()
    assert f"](tutorial/{picture.name})" in (TOP / "docs" / "TUTORIAL.md").read_text()
    assert picture.stem == screenshots.CAFE.name


def test_program_takes_a_picture_of_a_running_box_office(
    browser: webdriver.Chrome,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program runs the box office, takes the chosen picture, and says where it is."""
    monkeypatch.setattr(screenshots, "CALLS_FIRST", 10)  # no picture of the documentation
    screenshots.main(["--only", "requests-narrow", "--directory", str(tmp_path)], browser)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get("about:blank")
    (picture,) = tmp_path.iterdir()
    assert picture.read_bytes().startswith(PNG)
    assert capsys.readouterr().out == f"{picture}\n"
