"""The files of deploy/ say what they mean to, as far as that can be seen without a cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from oxibonsai.ray_app.options import read_arguments
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.settings import Settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
STORE = "postgresql+psycopg://u@h/name"


def documents(name: str) -> list[Any]:
    return [d for d in yaml.safe_load_all((DEPLOY / name).read_text()) if d is not None]


def flags(words: list[str]) -> dict[str, Any]:
    """Command-line flags as settings."""
    given: dict[str, Any] = {}
    rest = [part for word in words for part in word.split("=", 1)]
    while rest:
        field = rest.pop(0).removeprefix("--").replace("-", "_")
        assert field in Settings.model_fields, field
        given[field] = rest.pop(0) if rest and not rest[0].startswith("--") else True
    return given


def test_every_yaml_file_can_be_read() -> None:
    files = list(DEPLOY.rglob("*.yaml"))
    assert len(files) >= 5
    for path in files:
        assert documents(str(path.relative_to(DEPLOY)))


def test_the_settings_of_ray_s_applications_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_STORE", STORE)  # KubeRay's file reads it from a secret
    service = documents("ray/rayservice.yaml")[0]
    for config in (
        documents("ray/serve.yaml")[0],
        yaml.safe_load(service["spec"]["serveConfigV2"]),
    ):
        for application in config["applications"]:
            assert application["import_path"] == "oxibonsai.ray_app:build"
            options, settings = read_arguments(application["args"])
            assert options.max_replicas > 1
            assert settings.shared_store


def test_models_of_one_cluster_have_databases_of_their_own() -> None:
    applications = documents("ray/serve.yaml")[0]["applications"]
    stores = {application["args"]["store"] for application in applications}
    assert len(stores) == len(applications) > 1


def test_what_compose_mounts_is_no_part_of_the_image() -> None:
    (compose,) = documents("compose.yaml")
    mounted = [volume.split(":")[0] for volume in compose["services"]["oxibonsai"]["volumes"]]
    mounted += [secret["file"] for secret in compose["secrets"].values()]
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert {f"deploy/{path.removeprefix('./')}" for path in mounted} <= set(ignored)


def test_a_node_of_kuberay_holds_an_engine() -> None:
    spec = documents("ray/rayservice.yaml")[0]["spec"]
    threads = yaml.safe_load(spec["serveConfigV2"])["applications"][0]["args"]["threads"]
    group = spec["rayClusterConfig"]["workerGroupSpecs"][0]
    container = group["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["cpu"] == str(threads)


def test_the_deployment_s_parts_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    claim, deployment, service = documents("kubernetes/oxibonsai.yaml")
    monitor, scaler = documents("kubernetes/autoscaling.yaml")
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    mounted = {m["name"] for m in container["volumeMounts"]}
    assert mounted == {v["name"] for v in pod["spec"]["volumes"]}
    assert (
        pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    )
    monkeypatch.setenv("OXIBONSAI_STORE", STORE)
    given = {**flags(container["args"]), "api_key_file": (__file__,)}
    settings = load_settings(given)
    assert settings.shared_store
    assert settings.metrics
    target = scaler["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
    assert target == str(settings.parallel)
    assert pod["spec"]["terminationGracePeriodSeconds"] > settings.drain_timeout + 5


def test_compose_s_servers_share_their_database() -> None:
    (compose,) = documents("compose.yaml")
    server = compose["services"]["oxibonsai"]
    given = flags(shlex.split(server["command"]))
    settings = load_settings(
        {**given, "api_key_file": (__file__,), "store": server["environment"]["OXIBONSAI_STORE"]}
    )
    assert settings.shared_store
    assert "oxibonsai:8080" in (DEPLOY / "nginx.conf").read_text()
