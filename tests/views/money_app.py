"""An application whose money is in two stores: wallets in a database, purses in a search index."""

from penstock import App, Entity, key, postgres, search, sqlite, view


class Purse(Entity):
    name: str = key()
    coins: int = 0


class Wallet(Entity):
    name: str = key()
    coins: int = 0

    def pay(self, purse: Purse, coins: int) -> None:
        self.coins -= coins
        purse.coins += coins


books = view("books", sqlite(), Wallet)
purses = view("purses", search(), Purse)

app = App("money", Wallet, Purse, books, purses)
"""The coins of all wallets and purses add up to 0."""

in_postgres = App("money", Wallet, Purse, view("books", postgres(schema="money"), Wallet), purses)
"""The same, with the wallets in PostgreSQL."""
