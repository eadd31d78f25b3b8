"""`penstock host`: what it refuses before anything starts, and what it understands of the output of Spark."""

import socket
from pathlib import Path

import pytest

from penstock.cli.main import execute
from penstock.cli.running import cluster_host
from penstock.cli.running.cluster_host import MASTER, WORKER, SparkWatch
from penstock.errors import ConfigError
from penstock.process.config import Config
from penstock.runtime.spark import standalone
from penstock.runtime.spark.session import settings_of_cluster
from penstock.runtime.spark.standalone import MasterPlace

URL = "spark://127.0.0.1:7077"


def test_missing_settings_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A host without a store and a master is refused; the message says what both are."""
    assert execute(["host"]) == 2
    told = capsys.readouterr().err
    assert "2 settings of a host are missing" in told
    assert "--data s3://BUCKET/PREFIX" in told
    assert "--master spark://HOST:7077" in told


def test_master_runs_on_the_host_that_has_its_address() -> None:
    """Another address is that of another host; a port that is taken is refused with the remedy."""
    assert not cluster_host._has_master(MasterPlace("192.0.2.1", 7077))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = MasterPlace("127.0.0.1", other.getsockname()[1])
        with pytest.raises(ConfigError, match="let --master name another port"):
            cluster_host._has_master(place)
    assert cluster_host._has_master(place)


def test_worker_serves_while_the_master_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves when the master has registered it, and not while it looks for the master; silence becomes a sentence."""
    watch = SparkWatch(URL)
    line = "info org.apache.spark.deploy.worker.Worker: "
    assert not watch.is_serving(WORKER)
    watch.saw(WORKER, f"{line}Successfully registered with master {URL}")
    assert watch.is_serving(WORKER)
    watch.saw(WORKER, f"{line}Connection to master failed! Waiting for master to reconnect...")
    assert not watch.is_serving(WORKER)
    assert watch.trouble() == ""
    monkeypatch.setattr(cluster_host, "_SILENCE_S", 0.0)
    assert "--with-master" in watch.trouble()
    watch.saw(WORKER, f"{line}Master has changed, new master is at {URL}")
    assert watch.is_serving(WORKER)
    assert watch.trouble() == ""
    watch.saw(MASTER, "I have been elected leader! New state: RECOVERING")
    assert not watch.is_serving(MASTER)
    watch.saw(MASTER, "Recovery complete in 357 ms - resuming operations!")
    assert watch.is_serving(MASTER)


def test_wrong_secret_is_told_as_such() -> None:
    """Spark prints an exception; the host says which setting is wrong."""
    watch = SparkWatch(URL)
    watch.saw(
        WORKER, "error …TransportClientFactory: Exception while bootstrapping client after 9 ms"
    )
    assert "master_secret" in watch.trouble()


def test_settings_of_spark_have_the_secret_and_are_private(tmp_path: Path) -> None:
    """Master and worker demand the secret and encrypt; nobody else reads it; no page ends a program."""
    secret = tmp_path / "secret"
    secret.write_text("a secret\n")
    config = Config(
        data=tmp_path, master=URL, master_secret=secret, host_data=Path("/var/lib/shop")
    )
    standalone.prepare(tmp_path / "spark", config)
    written = tmp_path / "spark" / "spark.conf"
    settings = dict(line.split(" ", 1) for line in written.read_text().splitlines())
    assert settings["spark.authenticate.secret"] == "a secret"
    assert settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.master.rest.enabled"] == "false"
    assert settings["spark.ui.killEnabled"] == "false"
    assert written.stat().st_mode & 0o077 == 0
    assert standalone.master_command(tmp_path / "spark", config)[-6:-2] == [
        *("--host", "127.0.0.1"),
        *("--port", "7077"),
    ]
    assert "--cores" in standalone.worker_command(tmp_path / "spark", config, 3)


def test_executor_outlives_a_cut_of_half_a_minute(tmp_path: Path) -> None:
    """Neither the driver nor the master gives it up, so nothing has to start when the link is back; else a new one would."""
    secret = tmp_path / "secret"
    secret.write_text("a secret\n")
    config = Config(
        data=tmp_path, master=URL, master_secret=secret, host_data=Path("/var/lib/shop")
    )
    of_driver = settings_of_cluster(config)
    assert of_driver["spark.storage.blockManagerHeartbeatTimeoutMs"] == "45s"
    standalone.prepare(tmp_path / "spark", config)
    of_master = (tmp_path / "spark" / "spark.conf").read_text()
    assert (
        "spark.worker.timeout 45\n" in of_master
    )  # a worker tells of itself four times in this time


@pytest.mark.parametrize("url", ["spark://", "spark://host:port"])
def test_master_without_an_address_is_refused(url: str) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigError, match="master"):
        standalone.place_of_master(url)


def test_host_that_is_not_found_is_refused() -> None:
    """A name without an address is told before anything starts."""
    with pytest.raises(ConfigError, match="its host is not found"):
        standalone.own_address("spark://no-such-host.invalid:7077")
