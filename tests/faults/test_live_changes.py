"""Deployments, rollbacks and moves of buckets go on under load while processes of `penstock run` are killed."""

import argparse
from pathlib import Path

import pytest

from benchmarks.live_changes import changed_under_kills

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]


@pytest.mark.turns(1, "runtime", "process", "engine", of="faults of an application under load")
def test_kills_during_changes_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each purchase takes effect once, with the code of its epoch; money, stock, replay and verification agree."""
    # This seed deploys, takes the version back, and moves buckets, while a gateway, the driver and a worker are killed.
    choices = argparse.Namespace(
        changes=3, seconds=0, people=5, gateways=2, seed=298, kills=1, moves_only=False
    )
    figures = changed_under_kills(tmp_path, choices)
    assert figures["wrong"] == []
    assert figures["versions"] > 1, "purchases ran with old and new code"
    assert {"driver", "gateway"} <= figures["killed"].keys()
