"""The customers, who are told what became of their trips."""

from penstock import Entity, call, key

from .trips import Answer, booked


class Customer(Entity):
    """A customer, with the bookings of each trip, and the problem of each trip that failed."""

    name: str = key()
    bookings: dict[str, list[str]] = {}
    problems: dict[str, str] = {}

    def told(self, answer: Answer) -> None:
        """Note what became of a trip."""
        if answer.problem:
            self.problems[answer.trip_id] = answer.problem
        else:
            self.bookings[answer.trip_id] = answer.bookings


answers = call(booked, Customer.told, lambda answer: (Customer(answer.customer), answer))
