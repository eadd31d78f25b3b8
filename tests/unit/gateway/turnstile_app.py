"""An application whose gateways admit few requests."""

from penstock import App, Entity, key, limit, transactional


class Gate(Entity):
    name: str = key()
    passed: int = 0

    @limit("2/d per key")
    def enter(self) -> int:
        self.passed += 1
        return self.passed

    @limit("3/d per principal")
    def greet(self) -> str:
        return f"Welcome to {self.name}"

    @limit("2 at once")
    def pass_slowly(self) -> int:
        self.passed += 1
        return self.passed


@transactional
@limit("1/h burst 2")
def open_all(names: list[str]) -> int:
    for name in names:
        Gate.upsert(name)
    return len(names)


app = App("turnstile", Gate, open_all)
