"""Variables that declarations name: read once, known afterwards, and no part of a fingerprint."""

import json
import os
from pathlib import Path

import pytest

from dagster_tidemark import build_definitions, environment
from dagster_tidemark.environment import VariableRefused, declared_variables, from_env
from dagster_tidemark.settings import Settings, SettingsError, load_settings
from tests.checkout import CHECKOUT
from tests.warm_python import run_python


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_read", {})


def test_declared_variable_has_its_value_or_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_PINGS_QUEUE", "acme-pings")
    assert from_env("ACME_PINGS_QUEUE", default="pings") == "acme-pings"
    monkeypatch.setenv("ACME_PINGS_QUEUE", "")
    assert from_env("ACME_PINGS_QUEUE", default="pings") == "pings"
    monkeypatch.delenv("ACME_PINGS_QUEUE")
    assert from_env("ACME_PINGS_QUEUE", default="pings") == "pings"
    assert declared_variables() == {"ACME_PINGS_QUEUE": "pings"}


def test_variable_with_a_reserved_name_is_refused() -> None:
    assert from_env("TIDEMARK_PINGS_QUEUE", default="pings") == from_env("TIDEMARK_PINGS_TOPIC", "pings") == "pings"
    for name in ("TIDEMARK_PINGS", "TIDEMARK_QUEUE"):
        with pytest.raises(VariableRefused, match=f"{name}.*give the variable another prefix"):
            from_env(name, default="pings")


def test_undeclared_tidemark_variable_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    monkeypatch.setenv("TIDEMARK_PINGS_QUEUE", "pings")
    load_settings()  # a module that is not imported yet may declare it
    with pytest.raises(SettingsError, match=r"^TIDEMARK_PINGS_QUEUE: there is no such setting, and no declaration"):
        build_definitions(settings, [], [], [])
    from_env("TIDEMARK_PINGS_QUEUE", default="pings")
    build_definitions(settings, [], [], [])
    monkeypatch.setenv("TIDEMARK_PING_QUEUE", "pings")
    with pytest.raises(SettingsError, match=r"^TIDEMARK_PING_QUEUE: .*; did you mean TIDEMARK_PINGS_QUEUE\?$"):
        build_definitions(settings, [], [], [])
    monkeypatch.setenv("TIDEMARK_PINGS", "pings")
    with pytest.raises(SettingsError, match=r"^TIDEMARK_PINGS: there is no such setting;"):
        load_settings()


_QUEUES = """
import json
from pipelines.definitions import defs
from pipelines.streams import STREAMS
from dagster_tidemark.streams.transport import queues_of
print(json.dumps([queues_of(STREAMS), defs.get_repository_def().get_job("shift_readings").name]))
"""


def test_grocer_variables_rename_queues_without_changing_fingerprints() -> None:
    own = {"TIDEMARK_READINGS_QUEUE": "acme-readings", "TIDEMARK_SCORES_QUEUE": "acme-scores"}
    own["TIDEMARK_CODE_LOCATION"] = "pipelines"

    def run(*arguments: str) -> str:
        done = run_python(arguments, cwd=CHECKOUT, env=os.environ | own, timeout=60)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    queues, job = json.loads(run("-c", _QUEUES))
    assert {"acme-readings", "acme-scores", "alerts"} <= set(queues) and "cold-chain-readings" not in queues
    assert job == "shift_readings"
    assert "all up to date" in run("-m", "dagster_tidemark.cli.app", "lock", "check")
