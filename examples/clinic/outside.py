"""The other systems: the mail relay of this machine, and the provider of card payments."""

from datetime import timedelta

from penstock import http, mail

post = mail("post", "smtp+plain://127.0.0.1:2525", sender="Clinic <desk@clinic.example>")

card = http("card", "{CARD_URL}", accepts=(402,), tries=5, timeout=timedelta(seconds=10))
