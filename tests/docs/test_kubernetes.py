"""The manifests for Kubernetes fit its schemas, and the settings in them are settings of Penstock."""

from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from penstock.cli.commands import load
from penstock.process.config import Config, load_config
from tests.checkout import TOP

MANIFESTS: Final = [
    one for one in yaml.safe_load_all((TOP / "deploy" / "kubernetes.yaml").read_text()) if one
]
BY_KIND: Final = {(one["kind"], one["metadata"]["name"]): one for one in MANIFESTS}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: one["kind"])
@pytest.mark.parametrize("release", ["1.31", "1.34"])
def test_manifest_fits_the_schema(manifest: dict[str, Any], release: str) -> None:
    """No field is unknown, misspelt or of another type."""
    kubernetes_validate.validate(manifest, release, strict=True)


def containers() -> list[dict[str, Any]]:
    hosts, drivers = BY_KIND["StatefulSet", "penstock"], BY_KIND["Deployment", "penstock-driver"]
    assert (hosts["spec"]["replicas"], drivers["spec"]["replicas"]) == (3, 2)
    return [one["spec"]["template"]["spec"]["containers"][0] for one in (hosts, drivers)]


def test_commands_exist_with_these_options() -> None:
    """Each container runs a command of Penstock with options that it has."""
    for container in containers():
        name, *words = container["args"]
        options = {option for each in load(name).params for option in each.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_settings_can_be_used(tmp_path: Path) -> None:
    """The file of the settings is read as a whole, and names a store, a topic and a cluster."""
    file = tmp_path / "penstock.toml"
    file.write_text(BY_KIND["ConfigMap", "penstock"]["data"]["penstock.toml"])
    settings: Config = load_config(data=tmp_path, file=file)
    assert settings.is_cluster
    assert settings.store == "s3://company/shop"
    assert settings.host_data.is_relative_to("/var/lib/penstock")


def test_secrets_are_named_and_never_contained() -> None:
    """No manifest is a Secret; containers refer to secrets, and run without rights."""
    assert "Secret" not in {one["kind"] for one in MANIFESTS}
    for container in containers():
        assert container["envFrom"] == [{"secretRef": {"name": "penstock"}}]
        rights = container["securityContext"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert not rights["allowPrivilegeEscalation"]
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert {"/var/lib/penstock", "/tmp", "/etc/penstock/spark"} <= mounted


def test_image_has_what_the_manifests_name() -> None:
    """The Dockerfile names plain images alone, makes the folders that are mounted, and has the user of the pods."""
    lines = (TOP / "Dockerfile").read_text()
    bases = [line.split()[1] for line in lines.splitlines() if line.startswith("FROM ")]
    assert all("/" not in base for base in bases)
    assert "--uid 1000" in lines
    assert "/var/lib/penstock" in lines
