"""Configuration: sources, their priority, and complaints that say where they come from."""

import pickle
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.engine.execute import Limits
from penstock.errors import ConfigError
from penstock.process.config import (
    Config,
    Setting,
    TargetSettings,
    load_config,
    meanings,
    parse_assignment,
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flag(name: str, value: object) -> Setting:
    return Setting(name, value, f"--{name}")


def test_partitions_default_to_cores() -> None:
    """All cores of the machine are used unless a setting says otherwise."""
    assert Config(Path("d"), cores=3).partitions == 3


def test_master_defaults_to_local_cores_with_retries() -> None:
    """The embedded master retries tasks, as plain `local[N]` would not, and has a slot for maintenance."""
    assert Config(Path("d"), cores=3).spark_master == "local[7,4]"
    assert Config(Path("d"), master="local[3]").spark_master == "local[3]"


CLUSTER: dict[str, Any] = {
    "master": "spark://h:1",
    "master_secret": Path("/s"),
    "host_data": Path("/host"),
}


def test_a_cluster_needs_a_secret_and_a_folder_of_each_host() -> None:
    """All that a cluster lacks is named at once, and other masters than Spark's own are refused."""
    assert Config(Path("d"), **CLUSTER).spark_master == "spark://h:1"
    with pytest.raises(ConfigError) as caught:
        Config(Path("d"), master="spark://h:1", resident_task=0)
    assert re.findall(r"^  (\w+)", str(caught.value), re.MULTILINE) == [
        "master_secret",
        "host_data",
        "resident_task",
    ]
    shared = {**CLUSTER, "host_data": Path("d/host").absolute()}
    with pytest.raises(ConfigError, match="lies in the data directory, which all hosts share"):
        Config(Path("d"), **shared)
    with pytest.raises(ConfigError, match="must be spark://HOST:PORT"):
        Config(Path("d"), master="yarn")


def test_copies_are_all_or_a_number() -> None:
    """The number of partitions then does not follow the cores."""
    assert Config(Path("d"), **CLUSTER).copies_max is None
    assert Config(Path("d"), copies="2", **CLUSTER).copies_max == 2
    for wrong in ("0", "some", "-1", "", "1.5"):
        with pytest.raises(ConfigError, match=r"copies = .*must be `all`, or a number"):
            Config(Path("d"), copies=wrong, **CLUSTER)
    with pytest.raises(ConfigError, match="auto_partitions"):
        Config(Path("d"), copies="2", auto_partitions=1, **CLUSTER)


def test_a_resident_task_needs_a_slot() -> None:
    """The embedded master and a cluster have slots for it; the setting turns it off."""
    assert Config(Path("d"), cores=3).residents == 3
    assert Config(Path("d"), cores=3, partitions=2).residents == 2
    assert Config(Path("d"), resident_task=0).residents == 0
    assert Config(Path("d"), master="local[3]").residents == 0
    assert Config(Path("d"), cores=3, partitions=2, **CLUSTER).residents == 3
    assert Config(Path("d"), cores=3, partitions=2, auto_partitions=1).residents == 3


def test_config_refuses_all_wrong_values_at_once() -> None:
    """A Config that is built by hand reports every wrong value."""
    with pytest.raises(ConfigError) as caught:
        Config(Path("d"), cores=0, poll_ms=0, limits=Limits(time_ms=0))
    text = str(caught.value)
    assert "cores = 0: must be at least 1" in text
    assert "poll_ms = 0" in text
    assert "limits.time_ms = 0" in text


def test_flags_beat_environment_beats_file(directory: Path) -> None:
    """Each source overrides the sources before it, only for the settings that it names."""
    (directory / "penstock.toml").write_text(
        "cores = 2\npartitions = 2\npoll_ms = 7\n[limits]\ntime_ms = 100\ndepth = 300\n"
    )
    config = load_config(
        data=Path("d"),
        environment={"PENSTOCK_PARTITIONS": "3", "PENSTOCK_LIMITS_DEPTH": "400", "HOME": "x"},
        flags=[flag("partitions", 4)],
    )
    assert (config.cores, config.partitions, config.poll_ms) == (2, 4, 7)
    assert config.limits == Limits(time_ms=100, depth=400)


def test_no_source_gives_the_defaults(directory: Path) -> None:
    """Without file, environment and flags everything is as documented."""
    assert load_config(data=directory) == Config(directory)


def test_named_file_must_exist(directory: Path) -> None:
    """A named file that does not exist is an error, unlike the optional file."""
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(data=directory, file=directory / "absent.toml")


def test_broken_file_says_where(directory: Path) -> None:
    """A TOML error carries the file's name and the line."""
    path = directory / "broken.toml"
    path.write_text("cores = \n")
    with pytest.raises(ConfigError, match=r"broken\.toml.*line 1"):
        load_config(data=directory, file=path)


def test_data_in_a_file_counts_from_the_file(directory: Path) -> None:
    """A relative directory in a file means the same wherever the command is started."""
    path = directory / "conf" / "app.toml"
    path.parent.mkdir()
    path.write_text('data = "state"\n')
    assert load_config(data=Path("d"), file=path).data == path.parent / "state"


def test_all_complaints_come_at_once_with_their_source(directory: Path) -> None:
    """One run names every wrong setting and its source."""
    (directory / "penstock.toml").write_text('cores = "many"\npartition = 2\n[limits]\ntime = 1\n')
    with pytest.raises(ConfigError) as caught:
        load_config(
            data=directory,
            environment={"PENSTOCK_POLL_MS": "soon"},
            flags=[flag("cores", 0)],
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 settings cannot be used:"
    assert lines[1] == "  penstock.toml, cores: cores = 'many': must be a whole number"
    assert "penstock.toml, partition" in lines[2]
    assert "did you mean partitions" in lines[2]
    assert "penstock.toml, limits.time" in lines[3]
    assert lines[4] == "  $PENSTOCK_POLL_MS: poll_ms = 'soon': must be a whole number"
    assert lines[5] == "  --cores: cores = 0: must be at least 1"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("limits.tim_ms", "; did you mean limits.time_ms?"),
        ("gatway.port", "; did you mean gateway.port?"),
        ("time_ms", "; did you mean limits.time_ms or view.time_ms?"),
        ("limits.xyz", ""),
    ],
)
def test_only_near_names_are_suggested(directory: Path, name: str, meant: str) -> None:
    """Other settings of the same table are not what was meant."""
    with pytest.raises(ConfigError) as caught:
        load_config(data=directory, environment={}, flags=[flag(name, 1)])
    assert str(caught.value).endswith(f"setting {name!r} does not exist{meant}")


@pytest.mark.parametrize("value", ["true", "1.5", "[1]", "1979-05-27"])
def test_other_toml_types_are_refused(directory: Path, value: str) -> None:
    """A boolean is not a number, and neither is text that looks like one."""
    (directory / "penstock.toml").write_text(f"cores = {value}\n")
    with pytest.raises(ConfigError, match="must be a whole number"):
        load_config(data=directory)


def test_every_integer_setting_has_a_range() -> None:
    """No number is accepted unchecked."""
    numbers = 0
    for name in meanings():
        table, _, rest = name.partition(".")
        config = Config(Path("d"))
        value = getattr(getattr(config, table), rest) if rest else getattr(config, name)
        if not isinstance(value, int):
            continue
        numbers += 1
        with pytest.raises(ConfigError, match="must be at least"):
            load_config(data=Path("d"), flags=[flag(name, -1)])
    assert numbers > 30


def test_assignment_reads_like_a_setting(directory: Path) -> None:
    """`--set` reaches every setting by the name that the file uses."""
    config = load_config(data=directory, flags=[parse_assignment("limits.depth=333")])
    assert config.limits.depth == 333


def test_assignment_without_value_is_refused() -> None:
    """`--set name` without a value says which form was expected."""
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_assignment("cores")


SECRET = "postgresql://shop:hunter2@db/shop"


def test_target_of_a_view_has_settings(directory: Path) -> None:
    """A file names the address of each target, or a file with it, whose path counts from its own folder."""
    (directory / "address").write_text(f"{SECRET}\n")
    path = directory / "own.toml"
    path.write_text(f'[views.reporting]\nurl = "{SECRET}"\n[views.names]\nurl_file = "address"\n')
    config = load_config(data=Path("d"), file=path)
    assert config.target_settings("reporting").address() == SECRET
    assert config.target_settings("names") == TargetSettings(url_file=directory / "address")
    assert config.target_settings("names").address() == SECRET
    assert config.target_settings("other").address() == ""
    assert config.views_without(["reporting", "other"]) == ["names"]
    (directory / "address").unlink()
    with pytest.raises(ConfigError, match=r"url_file = .*address: No such file"):
        config.target_settings("names").address()


def test_environment_names_a_target(directory: Path) -> None:
    """A variable beats the file, and finds the view whatever its case and dashes are."""
    (directory / "penstock.toml").write_text('[views.My-View]\nurl_file = "address"\n')
    variables = {"PENSTOCK_VIEWS_MY_VIEW_URL": SECRET, "PENSTOCK_VIEWS_NEW_ONE_URL_FILE": "/a/b"}
    config = load_config(data=Path("d"), environment=variables)
    assert config.target_settings("My-View") == TargetSettings(SECRET)
    assert config.target_settings("new-one") == TargetSettings(url_file=Path("/a/b"))
    assert config.views_without(["My-View", "new-one"]) == []


def test_target_in_kafka_has_properties(directory: Path) -> None:
    """A file and variables give properties of librdkafka beside the address; those that Penstock decides are refused."""
    (directory / "penstock.toml").write_text(
        '[views.changes]\nurl = "kafka://h:1/p"\n[views.changes.kafka]\n'
        '"sasl.username" = "me"\n"sasl.password_file" = "secret"\n"enable.ssl.certificate.verification" = true\n'
    )
    variables = {
        "PENSTOCK_VIEWS_CHANGES_KAFKA_SASL_USERNAME": "you",
        "PENSTOCK_VIEWS_CHANGES_KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "https://t",
        "PENSTOCK_VIEWS_CHANGES_URL": "kafka://h:2/p",
    }
    given = load_config(data=Path("d"), environment=variables).target_settings("changes")
    assert given.address() == "kafka://h:2/p"
    assert given.properties == {
        "sasl.username": "you",
        "sasl.password_file": "secret",
        "enable.ssl.certificate.verification": "true",
        "sasl.oauthbearer.token.endpoint.url": "https://t",
    }
    with pytest.raises(ConfigError, match="command line"):
        parse_assignment("views.changes.kafka.sasl.password=hunter2")
    refused = {"PENSTOCK_VIEWS_CHANGES_KAFKA_TRANSACTIONAL_ID": "hunter2"}
    with pytest.raises(ConfigError, match=r"kafka\.transactional\.id: Penstock sets it") as caught:
        load_config(data=Path("d"), environment=refused)
    assert "hunter2" not in str(caught.value)


def test_address_of_a_target_is_in_no_message(directory: Path) -> None:
    """It may contain a password: neither the text of the settings nor an error shows it."""
    config = load_config(data=Path("d"), environment={"PENSTOCK_VIEWS_A_URL": SECRET})
    assert "hunter2" not in f"{config!r} {config}"
    (directory / "penstock.toml").write_text(f'[views.a]\nuri = "{SECRET}"\nurl = ["{SECRET}"]\n')
    with pytest.raises(
        ConfigError, match=r"a view has url and url_file(.|\n)*must be text"
    ) as caught:
        load_config(data=Path("d"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="every user of the machine can read") as caught:
        parse_assignment(f"views.a.url={SECRET}")
    assert "hunter2" not in str(caught.value)


def test_settings_of_views_reach_a_child_process() -> None:
    """A question to a child may contain them."""
    config = Config(Path("d"), views={"a": TargetSettings(SECRET)})
    encoded = msgspec.msgpack.encode(config, enc_hook=str)
    decoded = msgspec.msgpack.decode(encoded, type=Config, dec_hook=lambda kind, text: kind(text))
    assert decoded == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(decoded) == hash(config)


@pytest.mark.parametrize("given", ["s3://bucket/app", "s3://bucket//app/", Path("s3://bucket/app")])
def test_place_in_an_object_store_has_a_folder_of_the_host(given: object) -> None:
    """The folder is the user's, whatever the present directory is, and a path that has lost a slash means the same."""
    environment = {"XDG_DATA_HOME": "/home/ann/data", "PENSTOCK_DATA": "elsewhere"}
    config = load_config(data=Path(), environment=environment, flags=[flag("data", given)])
    assert config.store == "s3://bucket/app"
    assert config.data == Path("/home/ann/data/penstock/bucket-app-d73814ac")
    of_child = load_config(data=config.data, environment={"PENSTOCK_DATA": str(config.data)})
    assert (of_child.data, of_child.store) == (config.data, "")


def test_places_in_an_object_store_share_no_folder() -> None:
    """Places whose names are alike have folders of their own."""
    folders = {
        load_config(data=Path(), flags=[flag("data", f"s3://{place}")]).data
        for place in ("abc/d-e", "abc-d/e", "abc/d/e", "abc/d.e", "abc/d_e")
    }
    assert len(folders) == 5


def test_folder_of_the_host_can_be_chosen(directory: Path) -> None:
    """A file names it from its own folder; a process that gets only the folder takes it as it is."""
    (directory / "penstock.toml").write_text('data = "s3://bucket/app"\nhost_data = "here"\n')
    config = load_config(data=Path())
    assert (config.data, config.store) == (Path("here"), "s3://bucket/app")
    of_child = load_config(data=Path(), flags=[flag("data", Path("here"))])
    assert (of_child.data, of_child.store) == (Path("here"), "")
    with pytest.raises(ConfigError, match=r"host_data: only an application .*s3://BUCKET/PREFIX"):
        load_config(data=Path(), flags=[flag("data", Path("elsewhere"))])


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///", "s3://Bucket/app", "s3://bucket/a b", "s3://bucket/../app", "s3://b/a?q"],
)
def test_place_that_stores_spell_differently_is_refused(url: str) -> None:
    """The error has the name, and the form of a good one."""
    with pytest.raises(
        ConfigError, match="is no place in an object store; write s3://BUCKET/PREFIX"
    ):
        load_config(data=Path(), flags=[flag("data", url)])


def test_properties_of_kafka_come_from_file_and_environment(tmp_path: Path) -> None:
    """A name keeps its dots, a file counts from the folder of the settings, and a value is never shown."""
    (tmp_path / "password").write_text("hunter2\n")
    file = tmp_path / "p.toml"
    file.write_text(
        'log = "kafka://a:1,b:2/shop"\n[kafka]\nreplicas_min = 1\nsecurity.protocol = "SASL_SSL"\n'
        'enable.ssl.certificate.verification = true\nsasl.password_file = "password"\n'
    )
    environment = {"PENSTOCK_KAFKA_SASL_USERNAME": "shop", "PENSTOCK_KAFKA_INSYNC_MIN": "1"}
    config = load_config(data=tmp_path, file=file, environment=environment)
    assert (config.kafka.replicas_min, config.kafka.insync_min) == (1, 1)
    assert config.kafka.read() == {
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": "true",
        "sasl.password": "hunter2",
        "sasl.username": "shop",
    }
    assert "shop" not in repr(config.kafka)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("log=kafka://a/shop", "must be embedded, or kafka://HOST:PORT"),
        ("log=kafka://a:1/", "must be embedded, or kafka://HOST:PORT"),
        ("log=sqlite", "must be embedded, or kafka://HOST:PORT"),
        ("log=kafka://me:secret@a", "no address of a broker has a user"),
        ("kafka.acks=1", "Penstock sets it, because an acknowledged request is on all replicas"),
        ("kafka.bootstrap.servers=a:1", "the setting log names the brokers"),
        ("kafka.replicas_min=0", "at least 1"),
        ("kafka.sasl.password=hunter2", "every user of the machine can read a command line"),
        ("kafka.ssl.key.pem=hunter2", "every user of the machine can read a command line"),
    ],
)
def test_wrong_settings_of_kafka_are_refused(
    directory: Path, assignment: str, message: str
) -> None:
    """Each names what is wrong, and no secret."""
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(data=directory, environment={}, flags=[parse_assignment(assignment)])
    assert "hunter2" not in str(caught.value)
    assert "secret" not in str(caught.value)
