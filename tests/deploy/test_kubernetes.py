"""The manifests fit one another, and the servers take the settings in them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cometmq.broker.config import load as load_broker
from cometmq.cli.commands import build_parser, chosen_in
from cometmq.cli.roles import ROLES
from cometmq.namesrv.config import load as load_namesrv
from cometmq.observed import Observed
from cometmq.sources import gather, values

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
FIELDS = {"metadata.name": "cometmq-broker-0", "status.podIP": "10.1.2.3"}
Manifest = dict[str, Any]


def documents(role: str) -> dict[str, Manifest]:
    found = yaml.safe_load_all((MANIFESTS / f"{role}.yaml").read_text())
    return {document["kind"]: document for document in found}


def container(role: str) -> Manifest:
    (found,) = documents(role)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def ports(role: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(role)["ports"]}


def settings(role: str) -> dict[str, Any]:
    """As the server in the pod gets them: its file, and its environment over it."""
    environment = {
        entry["name"]: FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in container(role).get("env", [])
    }
    keys = ROLES[role].settings.keys()
    return values(gather(role, keys, [MANIFESTS / f"{role}.toml"], environment, {}))


def config(role: str) -> Observed:
    given = settings(role)
    return load_broker(given)[0] if role == "broker" else load_namesrv(given)[0]


@pytest.mark.parametrize("role", ["namesrv", "broker"])
def test_a_pod_runs_a_command_with_its_file(role: str) -> None:
    command = container(role)["args"]
    options = build_parser(chosen_in(command)).parse_args(command)
    assert options.config == [Path(f"/etc/cometmq/{role}.toml")]
    generated = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    (files,) = [one["files"] for one in generated["configMapGenerator"]]
    assert f"{role}.toml" in files


@pytest.mark.parametrize("role", ["namesrv", "broker"])
def test_probes_ask_the_endpoint_that_the_settings_open(role: str) -> None:
    found, pod = config(role), container(role)
    assert found.metrics_exporter.value == "PROM"
    assert ports(role)["metrics"] == found.metrics_port
    paths = {
        probe: (pod[probe]["httpGet"]["path"], pod[probe]["httpGet"]["port"])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": ("/health", "metrics"),
        "livenessProbe": ("/health", "metrics"),
        "readinessProbe": ("/ready", "metrics"),
    }
    annotations = documents(role)["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(found.metrics_port)


def test_ports_are_those_that_the_servers_take() -> None:
    broker, store, ignored = load_broker(settings("broker"))
    assert not ignored
    assert ports("broker") == {
        "remoting": broker.port, "fast": broker.port - 2, "replication": broker.port + 1,
        "metrics": 5557,
    }  # fmt: skip
    assert (broker.name, broker.advertised_ip) == ("cometmq-broker-0", "10.1.2.3")
    assert (broker.bind_address, store.flush.value) == ("0.0.0.0", "SYNC_FLUSH")
    assert ports("namesrv")["remoting"] == 9876


@pytest.mark.parametrize("role", ["namesrv", "broker"])
def test_what_is_kept_lies_on_the_volume(role: str) -> None:
    (data,) = [m["mountPath"] for m in container(role)["volumeMounts"] if m["name"] == "data"]
    given = settings(role)
    path = given["storePathRootDir" if role == "broker" else "kvConfigPath"]
    assert Path(path).is_relative_to(data)
    claims = documents(role)["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert [claim["metadata"]["name"] for claim in claims] == ["data"]


@pytest.mark.parametrize("role", ["namesrv", "broker"])
def test_service_and_disruption_budget_mean_these_pods(role: str) -> None:
    found = documents(role)
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert found["StatefulSet"]["spec"]["serviceName"] == found["Service"]["metadata"]["name"]
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_brokers_are_told_every_name_server_there_is() -> None:
    namesrv = documents("namesrv")["StatefulSet"]
    name, replicas = namesrv["metadata"]["name"], namesrv["spec"]["replicas"]
    expected = ";".join(f"{name}-{number}.{name}:9876" for number in range(replicas))
    assert settings("broker")["namesrvAddr"] == expected
