"""An erasure and its neighbours: a process that runs before it, such as a standby, and another application."""

import subprocess
import sys
from pathlib import Path

from penstock import App, entity, key
from penstock.testing import Kit
from tests.differential.persons import ADA, Persons

NEIGHBOUR = """
import sys
from contextlib import closing
from pathlib import Path

from penstock.errors import Erased
from penstock.process.data_directory import DataDirectory
from penstock.deployment.loading import load_app
from tests.differential.committed import state_of
from tests.differential.persons import ADA, BOB, PERSONS

app = load_app(PERSONS)
with closing(DataDirectory(Path(sys.argv[1])).open_journal(app)) as journal:
    users, rows = app.entities["User"], state_of(journal)
    print(users.decode("ada", rows[ADA])["name"], flush=True)
    input()
    try:
        print(users.decode("ada", rows[ADA]))
    except Erased:
        print("erased")
    print(users.decode("bob", rows[BOB])["name"])
"""


def test_waiting_process_loses_the_key(tmp_path: Path) -> None:
    """A process that has read a person, and waits during the erasure, cannot read the row that it holds."""
    persons = Persons(tmp_path / "data")
    persons.begin()
    command = [sys.executable, "-c", NEIGHBOUR, str(persons.folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "Countess Lovelace\n"
        persons.order(ADA)
        persons.run()
        told, _ = child.communicate("\n", timeout=300)
    assert told == "erased\nBabbage\n"
    (made,) = persons.certificates()
    assert made.subject == ADA
    persons.runtime.close()


def test_erasure_leaves_the_other_application() -> None:
    """Two applications have a person with the same key; each of them is erased by itself."""

    @entity(personal=True)
    class User:
        user_id: str = key()
        name: str

    @entity(personal=True)
    class Member:
        member_id: str = key()
        name: str

        def rename(self, name: str) -> str:
            former, self.name = self.name, name
            return former

    kit = Kit(App("shop", User), App("club", Member))
    kit.call.User.create("ada", name="Ada")
    kit.call.Member.create("ada", name="Ada of the club")
    kit.erase("User", "ada")
    assert kit.entity("User", "ada") is None
    assert kit.call.Member("ada").rename("Countess") == "Ada of the club"
    kit.erase("Member", "ada")
    kit.call.User.create("ada", name="another Ada")
    assert kit.entity("Member", "ada") is None
    assert kit.entity("User", "ada") == {"user_id": "ada", "name": "another Ada"}
