"""An application with a class that was deployed with another name."""

from penstock import App, Entity, key


class Door(Entity, was="Gate"):
    gate_id: str = key()
    entered: int = 0

    def enter(self) -> int:
        self.entered += 1
        return self.entered


app = App("doors", Door)
