"""The key service: no readable key on the disk, and a service that fails loses nothing."""

import base64
import re
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from penstock.errors import ConfigError, Corrupt, Erased, JournalUnavailable
from penstock.files import key_file, key_service
from penstock.files.key_file import KeyFile
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.checkout import TOP
from tests.unit.process import key_services
from tests.unit.process.key_services import SERVICE, Vault


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "subjects.keys"


def seeds_of(file: KeyFile) -> set[bytes]:
    """Return the seeds of the keys, in the form in which a file that no service encrypts has them."""
    return {base64.b64encode(seed) for seed in file.tree().seeds.values()}


def test_file_of_a_service_has_no_readable_seed(path: Path) -> None:
    """The bytes hold neither seeds nor salt nor the data key, before and after a destruction."""
    file = KeyFile(path)
    file.create(SERVICE)
    first = path.read_bytes()
    file.destroy("User/ada", 0)
    for content in (first, path.read_bytes()):
        assert not any(seed in content for seed in seeds_of(file))
        assert b"seeds" not in content
    assert first[:120] != path.read_bytes()[:120], "each version has a data key of its own"


def test_existing_file_moves_to_a_service_and_back(path: Path) -> None:
    """The keys stay the same, and the bytes of the readable file are overwritten."""
    file = KeyFile(path)
    file.create()
    seeds, keys = seeds_of(file), file.keys()
    sealed = keys.seal("User/ada", b"data", b"row")
    with path.open("rb") as former:
        assert file.use_service(SERVICE)
        assert not former.read().strip(b"\x00")
    assert not any(seed in path.read_bytes() for seed in seeds)
    assert KeyFile(path).keys().unseal("User/ada", sealed, b"row") == b"data"
    assert not file.use_service(SERVICE)
    assert file.use_service("")
    assert all(seed in path.read_bytes() for seed in seeds)
    assert keys.unseal("User/ada", sealed, b"row") == b"data"


def test_a_process_asks_the_service_once_for_each_version(path: Path) -> None:
    """Further uses of keys ask nobody."""
    file = KeyFile(path)
    file.create(SERVICE)
    keys = KeyFile(path).keys()
    before = Vault.calls
    for _ in range(10):
        keys.unseal("User/bob", keys.seal("User/bob", b"data", b"row"), b"row")
    assert Vault.calls == before + 1


def test_failing_service_is_said_and_not_asked_at_each_use(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the service is down, the keys cannot be read for now; when it is back, they can."""
    file = KeyFile(path)
    file.create(SERVICE)
    other = KeyFile(path)
    before = Vault.calls
    monkeypatch.setattr(Vault, "is_down", True)
    for _ in range(3):
        with pytest.raises(JournalUnavailable, match="ConnectionError: the vault is down"):
            other.tree()
    assert Vault.calls == before + 1
    content = path.read_bytes()
    with pytest.raises(JournalUnavailable, match="the vault is down"):
        file.destroy("User/ada", 0)
    assert path.read_bytes() == content, "nothing is written that the service cannot open"
    monkeypatch.setattr(Vault, "is_down", False)
    monkeypatch.setattr(key_file, "_RETRY_S", 0.0)
    KeyFile(path).destroy("User/ada", 0)
    with pytest.raises(Erased):
        KeyFile(path).tree().cipher("User/ada", 0)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("Hostile", JournalUnavailable, "HostileError"),
        ("Exiting", ConfigError, "SystemExit: 3"),
        ("Forgetful", ConfigError, "does not return the bytes that wrap was given"),
        ("Wordy", ConfigError, "must return bytes, not str"),
        ("Endless", JournalUnavailable, "no answer after 0.2 s"),
        ("Missing", ConfigError, "PYTHONPATH"),
    ],
)
def test_hostile_service_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception], text: str
) -> None:
    """Whatever a service does, the process goes on, the former file stays, and the error says what happened."""
    monkeypatch.setattr(key_service, "ANSWER_S", 0.2 if name == "Endless" else 60.0)
    file = KeyFile(path)
    file.create()
    content = path.read_bytes()
    with pytest.raises(error, match=text):
        file.use_service(f"{key_services.__name__}:{name}")
    assert path.read_bytes() == content
    file.destroy("User/ada", 0)
    assert KeyFile(path).tree().generation("User/ada") == 1


def test_other_key_of_the_service_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the service decrypts with another key is no file with other keys."""
    KeyFile(path).create(SERVICE)
    monkeypatch.setattr(Vault, "shift", 8)
    with pytest.raises(Corrupt, match="encrypted with another key than the key service"):
        KeyFile(path).tree()


def test_setting_encrypts_a_new_and_an_existing_directory(tmp_path: Path) -> None:
    """The first start draws encrypted keys; without the setting they stay encrypted, and `plain` decrypts them."""
    directory = DataDirectory(tmp_path / "data")
    directory.create(SERVICE)
    path = directory.path / "subjects.keys"
    content = path.read_bytes()
    assert b"wrapped" in content
    directory.create()
    directory.create(SERVICE)
    assert path.read_bytes() == content
    directory.create("plain")
    assert b"seeds" in path.read_bytes()
    directory.create(SERVICE)
    assert b"seeds" not in path.read_bytes()


@pytest.mark.parametrize("name", ["vault", ":Vault", "a:", "a b:c", "a.:b", "a:b.c"])
def test_setting_must_name_a_module_and_a_name(tmp_path: Path, name: str) -> None:
    """A wrong form is refused with all other wrong settings."""
    with pytest.raises(ConfigError, match=r"must be module:name, or plain"):
        Config(tmp_path, key_service=name)


def test_service_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who copies the module of the page has a service."""
    page = (TOP / "docs" / "operations" / "persons.md").read_text()
    (module,) = re.findall(r"```python\n(# persons_kms\.py\n.*?)```", page, re.DOTALL)
    (tmp_path / "persons_kms.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PERSONS_KEY", Fernet.generate_key().decode())
    directory = DataDirectory(tmp_path / "data")
    directory.create("persons_kms:EnvironmentKey")
    (path,) = directory.path.iterdir()
    KeyFile(path).destroy("User/ada", 0)
    assert KeyFile(path).tree().generation("User/ada") == 1
