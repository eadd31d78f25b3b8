"""An application with persons on the driver's own code, for tests of erasures."""

from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.base.ids import EntityKey, Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.journal.replies import find_reply
from penstock.log.api import Entry
from penstock.model.reply import Reply
from penstock.orders.erasure_order import certificates, request_erasure
from penstock.orders.order import Place
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate
from tests.differential.inline import ONLY, Inline

PERSONS = "tests.unit.history.person_app:app"
ADA, BOB = EntityKey("User/ada"), EntityKey("User/bob")


class Persons:
    """The application on the driver's own code, in one process."""

    def __init__(self, folder: Path, spec: str = PERSONS, partitions: int = 2) -> None:
        self.app = load_app(spec)
        self.folder = folder
        folder.mkdir()
        DataDirectory(folder).open_journal(self.app).close()
        self.runtime = Inline(folder, partitions, spec=spec, name=self.app.name)
        self.sent = 0

    def send(self, entity: str, key: str, method: str, *given: Any, **named: Any) -> Reply:
        self.append(entity, key, method, *given, **named)
        return self.run()

    def append(self, entity: str, key: str, method: str, *given: Any, **named: Any) -> None:
        body, hint = self.app.request(entity, key, method, given, named)
        self.sent += 1
        self.runtime.log.append([Entry(RequestId(f"r{self.sent}"), body, hint, 0)])

    def publish(self, stream: str, *events: Any) -> None:
        """Append an atom; nothing runs."""
        self.sent += 1
        body = self.app.append(stream, events)
        self.runtime.log.append([Entry(RequestId(f"r{self.sent}"), body, b"", 0)])

    def order(self, subject: EntityKey, generation: int = 0) -> Lsn:
        return request_erasure(self.runtime.log, subject, generation)

    def run(self) -> Reply:
        """Process the whole log; return the reply to the last record."""
        end = self.runtime.log.end()
        self.runtime.advance(end)
        return self.reply(Lsn(end - 1))

    def reply(self, lsn: Lsn) -> Reply:
        with closing(DataDirectory(self.folder).open_journal(self.app)) as journal:
            return find_reply(journal, (ONLY, lsn))

    def certificates(self) -> list[Certificate]:
        return certificates(Place(self.runtime.config))

    def user(self, key: str) -> Any:
        return self.app.entities["User"].cls(key)

    def begin(self) -> None:
        """Create two persons and a page, each of them with a visit."""
        self.send("User", "ada", "create", name="Ada Lovelace")
        self.send("User", "bob", "create", name="Babbage")
        self.send("Page", "home", "create")
        self.send("User", "ada", "rename", "Countess Lovelace")
        self.send("Page", "home", "visit", self.user("ada"), "hello Lovelace")
        self.send("Page", "home", "visit", self.user("bob"), "hello")
