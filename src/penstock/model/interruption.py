"""`Interrupted` ends a transaction that exceeds a limit; code that catches errors of user code lets it pass."""


class Interrupted(BaseException):
    """The transaction exceeded a limit; the text says which."""
