"""The process that forks Python workers: the modules that it has loaded, and how Spark starts it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runtime.spark.launcher import write_python

PRELOADED = """
import sys
from penstock.runtime.spark.daemon import preload
preload()
import psutil; print(psutil.Process().num_threads())
before = set(sys.modules)
import pyspark.worker, penstock.runtime.spark.stage, pyarrow.parquet, lmdb, numpy
print(len(set(sys.modules) - before))
print(*sorted({"deltalake", "duckdb", "pandas", "rich"} & before))
"""
WHERE = "import os, sys; print(os.environ.get('PYTHONPATH')); print(sys.argv[1:])"


def python(*arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        arguments, env={**os.environ, **environment}, capture_output=True, check=True, text=True
    )
    return done.stdout.splitlines()


def test_it_forks_from_one_thread_with_all_that_workers_need() -> None:
    """No library has started a thread, a worker loads nothing more, and nothing else was loaded."""
    assert python(sys.executable, "-c", PRELOADED) == ["1", "0", ""]


@pytest.mark.parametrize("own", [None, "", '/an app\'s folder:/b "c"$HOME'])
def test_python_gets_the_path_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    """Spark's additions to `PYTHONPATH` are gone, earlier entries and arguments stay."""
    if own is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", own)
    launcher = write_python(tmp_path / "it's here" / "python")
    told = python(str(launcher), "-c", WHERE, "a  b", "", PYTHONPATH="/spark/pyspark.zip")
    assert told == [str(own), "['a  b', '']"]
