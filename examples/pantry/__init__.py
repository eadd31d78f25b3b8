"""A pantry: jars on shelves, and a program outside of Penstock that follows every change through Kafka.

The view `changes` sends each change of a jar to a topic, in the envelope of Debezium. `follow.py` reads the topic and needs
nothing of Penstock.
"""

from decimal import Decimal

from penstock import App, Entity, kafka, key, view


class Jar(Entity):
    jar_id: str = key()
    content: str
    grams: int = 0
    price: Decimal = Decimal(0)

    def fill(self, grams: int) -> int:
        self.grams += grams
        return self.grams

    def take(self, grams: int) -> int:
        if grams > self.grams:
            raise ValueError(f"only {self.grams} g left")
        self.grams -= grams
        return self.grams


app = App("pantry", Jar, view("changes", kafka(), Jar))
