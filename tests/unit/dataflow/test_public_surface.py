"""The public surface: each request that a gateway takes for an application, with its scope."""

from penstock import App, Entity, Principal, internal, key, route, stream, transactional
from penstock.dataflow.public_surface import public_surface, surface_text
from penstock.gateway.openapi.document import openapi_document


class Patient(Entity, internal=("upsert",)):
    patient_id: str = key()

    def allows(self, principal: Principal) -> bool:
        return True

    @route("POST /patients/{patient_id}/move")
    def move(self) -> None: ...

    @internal
    def heal(self) -> None: ...


@transactional
def count() -> int:
    return 1


@internal
@transactional
def clean() -> None: ...


app = App("ward", Patient, count, clean, stream("beds", int))


def test_surface_names_scopes() -> None:
    """Internal handlers are not in the list; remarks say where the right is asked."""
    assert (
        surface_text(app)
        == """\
call:Patient.create  POST /call/Patient/{key}/create      asks allows
call:Patient.delete  POST /call/Patient/{key}/delete      asks allows; call:Patient does not cover it
call:Patient.exists  POST /call/Patient/{key}/exists
call:Patient.move    POST /call/Patient/{key}/move        asks allows
read:Patient         GET /entities/Patient                asks allows
read:Patient         GET /entities/Patient/{key}          asks allows
read:Patient         GET /entities/Patient/{key}/changes  asks allows
read:Patient         GET /entities/Patient/changes        needs sql, too
read:Patient         GET /export/Patient                  needs sql, too
call:count           POST /call/count
append:beds          POST /streams/beds
follow:beds          GET /streams/beds
follow:beds          GET /export/streams/beds
call:Patient.move    POST /patients/{patient_id}/move     asks allows
"""
    )


def test_document_and_surface_agree() -> None:
    """The document of a gateway has the same requests to classes, functions, streams and paths."""
    document = openapi_document(app, secured=True)
    operations = {
        f"{verb.upper()} {path}"
        for path, verbs in document["paths"].items()
        for verb in verbs
        if path.startswith(("/call/", "/entities/", "/streams/", "/tables/", "/patients/"))
        and not path.endswith(("/history", "/-/tickets"))  # it needs sql; any credential
    }
    listed = {row.request for row in public_surface(app) if "/export/" not in row.request}
    assert operations == listed
