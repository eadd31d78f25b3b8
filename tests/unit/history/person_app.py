"""An application with a personal class, for tests of encryption and erasure."""

from datetime import timedelta

from penstock import App, Entity, entity, key, send, send_after


@entity(personal=True)
class User:
    """A person."""

    user_id: str = key()
    name: str
    visits: int = 0

    def rename(self, name: str) -> str:
        """Change the name, and answer with the former name."""
        former, self.name = self.name, name
        return former

    def refuse(self, why: str) -> None:
        """Fail with a text that has the name."""
        raise ValueError(f"{self.name}: {why}")


class Page(Entity):
    """A page, which is not personal."""

    page_id: str = key()
    visits: int = 0
    last: User | None = None

    def greet(self, greeting: str) -> str:
        """Answer with a greeting to all visitors."""
        return greeting

    def visit(self, user: User, greeting: str) -> str:
        """Count a visit, and answer with the name of the visitor."""
        self.visits += 1
        self.last = user
        user.visits += 1
        return f"{greeting} {user.name}"

    def invite(self, user: User, greeting: str) -> None:
        """Send requests about a visitor: at once, and for tomorrow."""
        send(Page.visit, self, user, greeting)
        send_after(timedelta(days=1), Page.visit, self, user, greeting)


app = App("persons", User, Page)
