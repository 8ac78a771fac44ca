"""The files of deploy/: what Dagster, YAML readers and systemd can check, and the permissions that the code needs."""

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore import xform_name
from dagster import _check as check
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config, dagster_instance_config_schema
from dagster._core.instance.ref import InstanceRef
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pyiceberg.catalog import glue

from dagster_tidemark.cli.metrics import metrics
from dagster_tidemark.production_rules import refusals
from dagster_tidemark.settings import Settings, load_settings
from tests.checkout import CHECKOUT

DEPLOY = CHECKOUT / "deploy"
INSTANCE = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
HELM = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
VARIABLES = {
    "DAGSTER_PG_HOST": "db.internal",
    "DAGSTER_PG_PORT": "5432",
    "DAGSTER_PG_USER": "dagster",
    "DAGSTER_PG_PASSWORD": "secret",
    "DAGSTER_PG_DB": "dagster",
    "DAGSTER_LOGS_BUCKET": "acme-dagster-logs",
}


def test_dagster_takes_the_instance_and_production_accepts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path)
    found = validate_config(dagster_instance_config_schema(), INSTANCE)
    assert found.success, [error.message for error in found.errors or ()]
    dagster_instance_config(str(tmp_path))  # it also refuses two limits of runs
    ref = InstanceRef.from_dir(str(tmp_path))
    assert check.not_none(ref.run_launcher_data).class_name == "DefaultRunLauncher"
    assert ref.compute_logs_data.class_name == "S3ComputeLogManager"
    assert check.not_none(ref.run_storage_data).class_name == "DagsterPostgresStorage" or ref.storage_data
    settings = Settings(
        environment="production",
        spark_remote="sc://spark:15002",
        catalog_uri="jdbc:postgresql://db/lake?user=u&password=p&sslmode=require",
        warehouse="s3://lake/warehouse",
        dagster_home=tmp_path,
        aws_endpoint_url=None,
    )
    assert refusals(settings) == []


def test_the_chart_gets_the_same_limits_as_the_instance() -> None:
    runs, daemon = INSTANCE["concurrency"]["runs"], HELM["dagsterDaemon"]
    queue = daemon["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert queue["maxConcurrentRuns"] == runs["max_concurrent_runs"]
    assert queue["tagConcurrencyLimits"] == runs["tag_concurrency_limits"]
    looks = INSTANCE["run_coordinator"]["config"]
    assert queue["dequeueIntervalSeconds"] == looks["dequeue_interval_seconds"] == 1
    assert queue["dequeueUseThreads"] is looks["dequeue_use_threads"] is True
    assert "concurrency" not in HELM, "the chart would write two limits, which Dagster refuses"
    ours, theirs = INSTANCE["run_monitoring"], daemon["runMonitoring"]
    for name, value in theirs.items():
        other = re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)
        assert other not in ours or ours[other] == value, name
    assert daemon["sensors"] == {"useThreads": True, "numWorkers": INSTANCE["sensors"]["num_workers"]}
    [code] = HELM["dagster-user-deployments"]["deployments"]
    images = [code["image"], HELM["dagsterWebserver"]["image"], daemon["image"]]
    assert code["replicaCount"] == 1 and all(image == images[0] and image["tag"] != "latest" for image in images)
    assert HELM["postgresql"]["postgresqlParams"]["sslmode"] == "require"
    assert HELM["additionalInstanceConfig"]["freshness"] == INSTANCE["freshness"]
    server, *others = yaml.safe_load_all((DEPLOY / "helm" / "connect-server.yaml").read_text())
    assert [each["kind"] for each in (server, *others)] == ["Deployment", "Service", "NetworkPolicy", "ServiceAccount"]
    assert server["spec"]["template"]["spec"]["serviceAccountName"] == others[-1]["metadata"]["name"]


def test_containers_of_one_host_have_one_daemon_and_a_login() -> None:
    services = COMPOSE["services"]
    ports = {name: service["ports"] for name, service in services.items() if service.get("ports")}
    published = {name for name, given in ports.items() if not all(port.startswith("127.0.0.1:") for port in given)}
    assert published == {"proxy"}, "nothing else is reached from outside"
    commands = [" ".join(service.get("command", ())) for service in services.values()]
    assert sum("dagster-daemon run" in command for command in commands) == 1
    assert sum("api grpc" in command for command in commands) == 1
    assert "basic_auth" in (DEPLOY / "compose" / "Caddyfile").read_text()
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    given = set(re.findall(r"^(\w+)=", (DEPLOY / "compose" / "example.env").read_text(), re.M))
    assert set(re.findall(r"\$\{(\w+)", text)) <= given and VARIABLES.keys() <= given


def test_production_accepts_the_example_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "compose" / "example.env").read_text(), re.M))
    for name in [name for name in os.environ if name.startswith(("TIDEMARK_", "AWS_", "SPARK_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value.strip("'"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path)
    assert load_settings().landing_bucket == "acme-landing"
    read = set(re.findall(r"\{env: (\w+)\}", (DEPLOY / "dagster.yaml").read_text()))
    of_units = {name for unit in (DEPLOY / "systemd").iterdir() for name in re.findall(r"\$\{(\w+)", unit.read_text())}
    assert read | of_units <= given.keys()
    dagster_instance_config(str(tmp_path))


def test_each_arrangement_serves_metrics_at_the_same_port() -> None:
    texts = [
        (DEPLOY / place).read_text()
        for place in ("compose/compose.yaml", "helm/metrics.yaml", "systemd/tidemark-metrics.service")
    ]
    assert all("tidemark, metrics" in text or "tidemark metrics" in text for text in texts)
    assert inspect.signature(metrics).parameters["port"].default == 9464 and all("9464" in text for text in texts)
    deployment, service = yaml.safe_load_all(texts[1])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "acme/tidemark:" + HELM["dagsterWebserver"]["image"]["tag"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert "prometheus-client==" in (DEPLOY / "tidemark-requirements.txt").read_text(), "of the extra `metrics`"


def test_every_variable_with_the_prefix_is_a_setting() -> None:
    # The settings refuse unknown names with the prefix, and every process gets the whole file of variables.
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        for name in re.findall(r"\bTIDEMARK_([A-Z_]*[A-Z])\b", path.read_text()):
            assert name.lower() in Settings.model_fields, f"{path.name}: TIDEMARK_{name}"


@pytest.mark.parametrize(("name", "context"), [("Dockerfile", CHECKOUT), ("spark.Dockerfile", DEPLOY)])
def test_an_image_runs_as_a_user_with_pinned_and_present_files(name: str, context: Path) -> None:
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[0][0] == "FROM" and ":" in lines[0][1] and not lines[0][1].endswith(":latest")
    assert [word for word, _ in lines][-1] == "CMD" and any(word == "USER" for word, _ in lines)
    for word, arguments in lines:
        assert word in {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "CMD", "EXPOSE"}, word
        if word == "RUN" and "pip install" in arguments:
            assert "--no-cache-dir" in arguments
        if word == "RUN" and "apt-get install" in arguments:
            assert "--no-install-recommends" in arguments and "rm -rf /var/lib/apt/lists" in arguments
        if word == "COPY":
            sources = [each for each in arguments.split()[:-1] if not each.startswith("--")]
            for source in sources:
                assert source == "." or (context / source).exists(), source


def test_the_image_gets_no_settings_and_no_local_state() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    local = (CHECKOUT / "dagster_tidemark" / "scaffold" / "project" / ".gitignore").read_text().splitlines()
    assert {".env", ".tidemark/"} <= set(local), "git does not take them either"
    for name in [".git", *(name.rstrip("/") for name in local)]:
        assert any(fnmatch(name, pattern.removeprefix("**/")) for pattern in ignored if pattern[:1] != "#"), name


def test_helm_finds_the_chart_without_a_repository_that_was_added_before() -> None:
    [command] = re.findall(r"^# +(helm upgrade .*)$", (DEPLOY / "helm" / "values.yaml").read_text(), re.M)
    assert "--repo https://dagster-io.github.io/helm " in command


def test_images_install_the_tested_versions_by_their_hashes() -> None:
    text = (DEPLOY / "tidemark-requirements.txt").read_text().replace("\\\n", " ")
    lines = [Requirement(line.partition(" --hash")[0]) for line in text.splitlines() if line and line[0] != "#"]
    assert all(" --hash=sha256:" in line for line in text.splitlines() if line and line[0] != "#")
    found = {canonicalize_name(each.name): str(each.specifier) for each in lines}
    tested = [
        Requirement(line) for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if line[:1].isalpha()
    ]
    versions = {canonicalize_name(each.name): str(each.specifier) for each in tested}
    assert {name: found[name] for name in found & versions.keys()} == {
        name: versions[name] for name in found & versions.keys()
    }
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(each for name in ("production", "kafka", "avro", "metrics") for each in extras[name]),
    ]
    for each in map(Requirement, [*wanted, "dagster-webserver>=1.13.27,<1.14"]):
        assert each.specifier.contains(found[canonicalize_name(each.name)].removeprefix("==")), each
    for image in ("Dockerfile", "spark.Dockerfile"):
        installs = re.findall(r"pip install ([^&\n]*)", (DEPLOY / image).read_text())
        # The list is complete. Without --no-deps, older pips refuse dependencies with an extra, such as gql[requests].
        assert "--no-deps --require-hashes -r" in installs[0]
        # The version of the list, also if a newer one is released.
        assert f"--no-deps dagster-tidemark=={project['version']}" in installs[1]


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    units = sorted((DEPLOY / "systemd").iterdir())
    for unit in units:  # the programs are not on this machine
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.M)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        [program, "verify", "--man=no", *(tmp_path / unit.name for unit in units)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "tidemark" in line]
    assert ours == []


def test_a_unit_that_a_timer_starts_ends_even_if_its_command_hangs() -> None:
    texts = {unit.name: unit.read_text() for unit in (DEPLOY / "systemd").iterdir()}
    oneshots = {name: text for name, text in texts.items() if "Type=oneshot" in text}
    assert oneshots.keys() == {name.replace(".timer", ".service") for name in texts if name.endswith(".timer")}
    for name, text in oneshots.items():
        [limit] = re.findall(r"^TimeoutStartSec=(\d+)$", text, re.M)
        assert 60 < int(limit) <= 120, name


def test_code_servers_run_without_a_proxy_that_outlives_them() -> None:
    texts = {path: path.read_text() for path in DEPLOY.rglob("*") if path.is_file()}
    assert not [path for path, text in texts.items() if "code-server start" in text or "codeServerArgs" in text]
    [code] = HELM["dagster-user-deployments"]["deployments"]
    assert "dagsterApiGrpcArgs" in code and code["livenessProbe"]["failureThreshold"] * 20 <= 60
    assert "dagster api grpc " in texts[DEPLOY / "systemd" / "tidemark-code.service"]


@pytest.mark.parametrize(("answers", "restarted"), [("true", []), ("sleep 5", ["try-restart tidemark-code"])])
def test_a_code_server_that_does_not_answer_is_restarted(tmp_path: Path, answers: str, restarted: list[str]) -> None:
    unit = (DEPLOY / "systemd" / "tidemark-code-health.service").read_text()
    [line] = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    check = "timeout 30 /opt/tidemark/venv/bin/dagster api grpc-health-check --port 4000"
    assert check in line
    log, fake = tmp_path / "log", tmp_path / "systemctl"
    log.touch()
    fake.write_text(f'#!/bin/sh\necho "$*" >>{log}\n')
    fake.chmod(0o755)
    command = line.replace(check, f"timeout 0.2 {answers}")
    subprocess.run(shlex.split(command), env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, timeout=30)
    assert log.read_text().splitlines() == restarted


def test_the_script_for_databases_keeps_passwords_out_of_arguments(tmp_path: Path) -> None:
    uri = "jdbc:postgresql://db.internal:6543/lake?user=me&password=p%3Aw%25&sslmode=require"
    said = tmp_path / "said"
    for program in ("pg_dump", "pg_restore", "psql", "tidemark"):
        fake = tmp_path / program
        newest = f"cat {tmp_path}/last; cat {tmp_path}/more >>{tmp_path}/last"
        looks = f'case "$*" in *max*) {newest} ;; *) cat {tmp_path}/beats; esac'
        answer = f"{looks}\n" if program == "psql" else ""
        fake.write_text(
            f'#!/bin/sh\n{answer}echo "{program} $*|$PGHOST $PGPORT $PGUSER $PGPASSWORD $PGDATABASE $PGSSLMODE"'
            f" >>{said}\n"
        )
        fake.chmod(0o755)
    environment = VARIABLES | {"TIDEMARK_CATALOG_URI": uri, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["SECONDS_BETWEEN_BEATS"] = "0"
    assert "PGSSLMODE" not in environment, "as in dagster.yaml, a password needs TLS"
    (tmp_path / "last").write_text("2026-11-27 08:00:00\n")
    (tmp_path / "more").write_text("")

    def call(what: str) -> int:
        command = [str(DEPLOY / "databases.sh"), what, str(tmp_path / "dumps")]
        return subprocess.run(command, env=environment, check=False, timeout=30, capture_output=True).returncode

    (tmp_path / "beats").write_text("0\n")
    assert (call("save"), call("restore"), call("remove")) == (0, 0, 2)
    lines = [line.split("|") for line in said.read_text().splitlines()]
    programs = ["pg_dump", "pg_dump", "psql", "psql", "psql", "pg_restore", "pg_restore", "psql", "tidemark"]
    assert [words.split()[0] for words, _ in lines] == programs
    lines = [line for line in lines if not line[0].startswith("psql ")]
    of_dagster, of_catalog = "db.internal 5432 dagster secret dagster require", "db.internal 6543 me p:w% lake require"
    assert [found for _, found in lines[:4]] == [of_dagster, of_catalog] * 2, "Dagster's database is saved first"
    assert not [words for words, _ in lines if "secret" in words or "p:w" in words]
    assert lines[4][0] == "tidemark restore-catalog --apply"
    said.write_text("")
    (tmp_path / "beats").write_text("1\n")
    assert call("restore") == 1
    assert "pg_restore" not in said.read_text(), "a daemon runs"
    (tmp_path / "beats").write_text("0\n")
    (tmp_path / "more").write_text("2026-11-27 08:00:30\n")
    assert call("restore") == 1
    assert "pg_restore" not in said.read_text(), "a daemon whose clock is behind runs"


def test_a_command_gets_the_settings_of_the_units_as_systemd_reads_them(tmp_path: Path) -> None:
    settings = tmp_path / "environment"
    uri = "jdbc:postgresql://db.internal:5432/lake?user=me&password=a%26b&sslmode=require"
    settings.write_text(
        f"# a comment\n\nDAGSTER_PG_PASSWORD=p $HOME;w\nUI_PASSWORD_HASH='$2a$14$x'\nTIDEMARK_CATALOG_URI={uri}"
    )
    script = DEPLOY / "with-settings.sh"
    environment = {"PATH": os.environ["PATH"], "SETTINGS_FILE": str(settings), "SETTINGS_USER": "root"}

    def call(*command: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [script, *command], env=environment | more, capture_output=True, text=True, check=False, timeout=30
        )

    found = dict(line.partition("=")[::2] for line in call("env").stdout.splitlines())
    assert found["TIDEMARK_CATALOG_URI"] == uri, "`&` does not end the value"
    assert (found["DAGSTER_PG_PASSWORD"], found["UI_PASSWORD_HASH"]) == ("p $HOME;w", "$2a$14$x")
    unit = (DEPLOY / "systemd" / "tidemark-status.service").read_text()
    [given] = re.findall(r"^Environment=(.*)$", unit, re.M)
    for name, value in (each.split("=") for each in given.split()):
        assert found[name] == value, name
    assert found["PATH"].startswith("/opt/tidemark/venv/bin:")
    assert (call().returncode, call("true").returncode, call("false").returncode) == (2, 0, 1)
    assert "call this as root" in call("true", SETTINGS_FILE=str(tmp_path / "missing")).stderr


def test_servers_without_a_login_listen_on_this_host_only() -> None:
    for name in ("spark", "spark-master", "spark-worker"):
        unit = (DEPLOY / "systemd" / f"tidemark-{name}.service").read_text()
        assert re.search(r"^Environment=.*SPARK_LOCAL_IP=127\.0\.0\.1", unit, re.M), name
    assert "spark.connect.grpc.binding.address $SPARK_LOCAL_IP" in (DEPLOY / "spark-connect.sh").read_text()
    for name in ("code", "webserver"):
        assert "--host 127.0.0.1" in (DEPLOY / "systemd" / f"tidemark-{name}.service").read_text()


def test_master_and_workers_have_the_settings_without_the_address_of_the_connect_server() -> None:
    for name in ("master", "worker"):
        unit = (DEPLOY / "systemd" / f"tidemark-spark-{name}.service").read_text()
        assert "EnvironmentFile=/etc/tidemark/environment" in unit and "UnsetEnvironment=SPARK_REMOTE" in unit


def test_the_runbook_names_only_files_and_units_that_exist() -> None:
    page = (CHECKOUT / "docs" / "runbook.md").read_text()
    units = {path.stem for path in (DEPLOY / "systemd").iterdir()}
    named = set(re.findall(r"\btidemark-(?:code|daemon|webserver|metrics|status|spark)(?:-[a-z]+)*", page)) - {
        "tidemark-requirements"
    }
    roles = {f"tidemark-{path.stem}" for path in (DEPLOY / "iam").iterdir()}
    assert named - roles <= units and units <= named, "each unit is started by a command of the runbook"
    for name in re.findall(r"(?<![\w/.])deploy/[\w./-]*\w", page):
        assert (CHECKOUT / name).exists(), name


LOCAL_STATE = {
    "cli/new.py": "new files of a project",
    "cli/plan.py": "manifests of previews",
    "cli/plan_preview.py": "manifests of previews",
    "cli/prune_lake.py": "manifests of previews",
    "cli/spark_conf.py": "`tidemark jars`",
    "cli/status.py": "manifests of previews",
    "code_versions/code_diff.py": "`plan --diff`",
    "code_versions/lock_file.py": "`code-versions.lock`",
    "components/scaffolding.py": "new files of a project",
    "engine/code_plan.py": "saved plan states",
    "lakehouse/model_store.py": "runs that write or read models",
    "lakehouse/session.py": "`run/pgpass`",
    "preview/manifest.py": "manifests of previews",
    "scaffold/new_project.py": "new files of a project",
    "sensors/reachable.py": "the default catalog",
    "settings.py": "`TIDEMARK_STATE_DIR`",
}
"""Modules that use local folders, and the words for it in docs/production.md. A laptop's own are in `local`."""


def test_all_state_in_local_folders_is_listed() -> None:
    writes = re.compile(
        r"state_dir|TemporaryDirectory|NamedTemporaryFile|mkdtemp|platform_home|\.write_text\(|\.write_bytes\("
        r"|open\(\"[wax]|\.touch\(|\.mkdir\(|AF_UNIX|flock|shelve"
    )
    library = CHECKOUT / "dagster_tidemark"
    found = {
        str(path.relative_to(library))
        for path in library.rglob("*.py")
        if "local" not in path.relative_to(library).parts and writes.search(path.read_text())
    }
    assert found == LOCAL_STATE.keys(), "add the module, and what happens when its process moves, to both lists"
    page = (CHECKOUT / "docs" / "production.md").read_text()
    section = page.partition("## State in local folders")[2].partition("\n## ")[0]
    assert [words for words in LOCAL_STATE.values() if words not in section] == []


# The permissions.

ACTIONS = {
    "head_bucket": "s3:ListBucket",
    "head_object": "s3:GetObject",
    "list_objects_v2": "s3:ListBucket",
    "list_object_versions": "s3:ListBucketVersions",
}
"""Calls whose permission has another name than the call."""
NOT_CALLED = {"create_queue"}
"""Calls that only a laptop makes, on its own cloud."""
BY_OTHERS = {
    "s3:GetObjectVersion": "get_object with a version; loads read the listed one",
    "s3:DeleteObject": "Iceberg deletes expired files",
    "s3:AbortMultipartUpload": "uploads of Iceberg, pyarrow and Dagster's logs",
    "s3:PutObject": "Iceberg, pyarrow and models write to the warehouse",
    "s3:GetObject": "Iceberg and pyarrow read the warehouse",
}
"""Permissions that are used by libraries, or by an argument of a call."""


def _operations(service: str) -> set[str]:
    client: Any = boto3.client(service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    return {xform_name(name) for name in client.meta.service_model.operation_names}


@cache
def _words() -> tuple[tuple[str, str], ...]:
    """Return each name after a dot and each text in the library, with its file."""
    found = []
    for path in (CHECKOUT / "dagster_tidemark").rglob("*.py"):
        if "local" not in path.parts:
            text = path.read_text()
            words = re.findall(r"\.([a-z_0-9]+)\b|\"([a-z_0-9]+)\"", text)
            found += [(attribute or literal, str(path.relative_to(CHECKOUT))) for attribute, literal in words]
    return tuple(found)


def _calls(operations: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each operation that the library calls or names as a text, with its file."""
    return ((word, path) for word, path in _words() if word in operations)


def _action(service: str, call: str) -> str:
    words = call.removesuffix("_batch").split("_")
    return ACTIONS.get(call) or f"{service}:{''.join(map(str.capitalize, words))}"


def _allowed(*roles: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for role in roles:
        for statement in json.loads((DEPLOY / "iam" / f"{role}.json").read_text())["Statement"]:
            actions, places = (
                [value] if isinstance(value, str) else value for value in (statement["Action"], statement["Resource"])
            )
            for action in actions:
                found.setdefault(action, set()).update(places)
    return found


def test_each_call_of_s3_and_sqs_has_its_permission_and_no_permission_is_idle() -> None:
    needed: dict[str, set[str]] = {}
    for service in ("s3", "sqs"):
        for call, path in _calls(_operations(service)):
            if call not in NOT_CALLED:
                needed.setdefault(_action(service, call), set()).add(path)
    assert {"s3:GetObject", "s3:ListBucketVersions", "sqs:ReceiveMessage", "sqs:SendMessage"} <= needed.keys()
    allowed = _allowed("code", "operator")
    assert needed.keys() - allowed.keys() == set(), {
        action: needed[action] for action in needed.keys() - allowed.keys()
    }
    for role in ("code", "operator", "spark", "webserver"):
        idle = _allowed(role).keys() - needed.keys() - BY_OTHERS.keys()
        assert idle == set(), f"{role}: {idle}"


def test_a_role_cannot_write_where_it_only_reads() -> None:
    for role in ("code", "spark", "webserver"):
        for action, places in _allowed(role).items():
            writes = action in {"s3:PutObject", "s3:DeleteObject"}
            assert not (writes and any("acme-landing" in place for place in places)), f"{role}: {action}"
    for role in ("code", "spark", "webserver", "operator", "glue"):
        policy = json.loads((DEPLOY / "iam" / f"{role}.json").read_text())
        for statement in policy["Statement"]:
            assert statement["Resource"] != "*" and "*" not in "".join(statement["Action"]), statement["Sid"]


def test_each_call_of_glue_has_its_permission() -> None:
    of_pyiceberg = set(re.findall(r"self\.glue\.(\w+)", inspect.getsource(glue)))
    of_ours = {call for call, path in _calls({"get_databases"}) if path.endswith("reachable.py")}
    pages = set(re.findall(r'get_paginator\("(\w+)"\)', inspect.getsource(glue)))
    needed = {_action("glue", call) for call in (of_pyiceberg | of_ours | pages) & _operations("glue")}
    assert "glue:CreateTable" in needed
    assert needed - {"glue:UpdateDatabase"} == _allowed("glue").keys(), "properties of databases are never changed"


def test_the_template_makes_what_the_page_describes() -> None:
    class Loader(yaml.SafeLoader):
        """A loader that keeps the functions of CloudFormation as texts."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: f"{suffix} {node.value}")
    found = yaml.load((DEPLOY / "aws" / "landing.yaml").read_text(), Loader)["Resources"]
    queues = {name: each["Properties"] for name, each in found.items() if each["Type"] == "AWS::SQS::Queue"}
    assert all(queue["MessageRetentionPeriod"] == 14 * 86_400 for queue in queues.values())
    for name, queue in queues.items():
        assert ("RedrivePolicy" in queue) != name.endswith("DeadLetters")
        assert queue.get("RedrivePolicy", {}).get("maxReceiveCount", 5) == 5
    bucket = found["LandingBucket"]
    events = bucket["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert [each["Event"] for each in events] == ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]
    lake, logs = found["LakeBucket"], found["LogsBucket"]
    assert bucket["DeletionPolicy"] == lake["DeletionPolicy"] == "Retain"
    for each in (bucket, lake, logs):
        assert all(each["Properties"]["PublicAccessBlockConfiguration"].values())
    [rule] = lake["Properties"]["LifecycleConfiguration"]["Rules"]
    assert "ExpirationInDays" not in rule, "Iceberg deletes files of the warehouse itself"
    alarms = [each for each in found.values() if each["Type"] == "AWS::CloudWatch::Alarm"]
    assert len(alarms) == len(queues) - 1
