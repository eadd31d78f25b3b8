"""The choice of an implementation: by the environment, never in silence, and never of a stale build."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import application
from penstock.errors import ConfigError
from penstock.native import choice
from penstock.native.choice import DISABLE, REQUIRE, VARIABLE
from penstock.native.digest import source_digest
from tests.checkout import TOP
from tests.native_build import needs_compiled


def test_wish_without_meaning_is_refused() -> None:
    """A wrong value of the variable names the right ones."""
    with pytest.raises(
        ConfigError, match=f"PENSTOCK_NATIVE is 'always'; use {REQUIRE} or {DISABLE}"
    ):
        choice.load("always")


def test_python_is_used_on_request() -> None:
    """The reason names the variable."""
    assert choice.load(DISABLE) == (None, f"{VARIABLE}={DISABLE}")


def test_missing_build_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a build, Python is used with the reason; an error if the build is required."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(choice, "import_module", missing)
    assert choice.load("") == (None, "not built")
    with pytest.raises(ConfigError, match="cannot be used: not built; run scripts/setup"):
        choice.load(REQUIRE)


def test_broken_build_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that does not load, such as one of another interpreter, is told with its error."""

    def broken(name: str) -> Any:
        raise ImportError(f"{name}: undefined symbol")

    monkeypatch.setattr(choice, "import_module", broken)
    assert choice.load("") == (None, "penstock.native._core: undefined symbol")


def test_stale_build_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build from another source than the present one could give other results."""
    monkeypatch.setattr(choice, "import_module", lambda _: SimpleNamespace(SOURCE="00000000"))
    assert choice.load("") == (None, "built from another source")


def test_build_belongs_to_the_present_source() -> None:
    """The suite runs the compiled implementation as it stands in the checkout."""
    needs_compiled()
    assert source_digest(TOP / "src" / "penstock" / "native") == choice.core.SOURCE
    assert choice.describe() == choice.implementation() == "compiled"


def test_version_names_the_implementation() -> None:
    """The second line of `penstock --version` says how transactions run."""
    lines = CliRunner().invoke(application, ["--version"]).stdout.splitlines()
    assert lines[1] == f"transactions run {choice.describe()}"


def test_choice_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that reads settings from the environment takes the variable for no setting."""
    monkeypatch.setenv(VARIABLE, os.environ.get(VARIABLE, ""))
    result = CliRunner().invoke(application, ["explain", str(TOP / "examples" / "bank")])
    assert result.exit_code == 0, result.output
