"""The page on many hosts: its command has the settings that a cluster needs, and Spark's properties are those of the tests."""

import itertools
import re
import shlex
from pathlib import Path

from penstock.process.config import load_config, parse_assignment
from tests.checkout import TOP
from tests.cluster.lab import PROPERTIES

PAGE = (TOP / "docs" / "HOSTS.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE) if found == language]


def test_the_command_of_the_page_is_valid() -> None:
    """It names all that a cluster needs; `tests/cluster` runs the same."""
    text, *_ = (text for text in blocks("bash") if text.startswith("penstock run"))
    words = shlex.split(text.replace("\\\n", " "))
    options = dict(zip(words[3::2], words[4::2], strict=True))
    given = [
        parse_assignment(value) for word, value in itertools.pairwise(words) if word == "--set"
    ]
    given += [parse_assignment(f"{name}={options[f'--{name}']}") for name in ("master", "cores")]
    config = load_config(data=Path(options["--data"]), flags=given)
    assert config.is_cluster
    assert (config.hosts, config.residents) == (2, 8)


def test_the_properties_of_spark_are_those_of_the_tests() -> None:
    """The file for Spark's master and workers is what the tests use."""
    (text,) = blocks("text")
    assert text.replace("SECRET", "%s") == PROPERTIES
