"""Requests to the platform's webserver: reload the code, and stop and start sensors."""

import json
import urllib.request
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.settings import Settings

_WITHIN = 120.0
_RELOAD = "mutation { reloadWorkspace { __typename ... on PythonError { message } } }"
_SENSORS = """query { workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
    ... on RepositoryLocation { repositories { name assetNodes { assetKey { path } }
        sensors { name id sensorState { status } } } } } } } } }"""
_STOP = "mutation Stop($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }"
_START = """mutation Start($selector: SensorSelector!) { startSensor(sensorSelector: $selector) {
    __typename ... on PythonError { message } } }"""


class NoWebserver(Transient):
    """The platform's webserver does not answer, or answers with an error."""


class OtherCode(Terminal):
    """After a reload the running code location still does not have this folder's code."""


@dataclass(frozen=True)
class Sensor:
    """A sensor of a running code location.

    Args:
        selector: Identifier of the sensor in the webserver's mutations.
    """

    id: str
    selector: Mapping[str, str]
    is_on: bool


@dataclass(frozen=True)
class Webserver:
    """The webserver at an address."""

    url: str

    @classmethod
    def of(cls, settings: Settings) -> "Webserver":
        """Return the webserver of the platform on this machine."""
        return cls(f"http://127.0.0.1:{settings.port_ui}/graphql")

    def reload(self) -> None:
        """Reload the code locations.

        Raises:
            NoWebserver: the webserver does not answer.
            OtherCode: the code cannot be loaded.
        """
        try:
            said = self._asked(_RELOAD)["reloadWorkspace"]
        except NoWebserver as error:
            raise NoWebserver(
                f"{error}; the code was not reloaded: deploy it in your usual way, and the sensors request the runs"
            ) from error
        if said["__typename"] == "PythonError":
            raise OtherCode(f"the code cannot be loaded: {said['message'].strip()}")

    def sensors(self, name: str, assets: Collection[str]) -> list[Sensor]:
        """Return the sensors with this name in all code locations that have any of these assets.

        Raises:
            NoWebserver: the webserver does not answer.
        """
        found = []
        for entry in self._asked(_SENSORS)["workspaceOrError"]["locationEntries"]:
            for repository in (entry["locationOrLoadError"] or {}).get("repositories", ()):
                keys = {"/".join(node["assetKey"]["path"]) for node in repository["assetNodes"]}
                place = {"repositoryName": repository["name"], "repositoryLocationName": entry["name"]}
                found += [
                    Sensor(s["id"], {**place, "sensorName": name}, s["sensorState"]["status"] == "RUNNING")
                    for s in repository["sensors"]
                    if s["name"] == name and not keys.isdisjoint(assets)
                ]
        return found

    def stop(self, sensor: Sensor) -> None:
        """Stop a sensor."""
        self._done("stopSensor", self._asked(_STOP, id=sensor.id))

    def start(self, selector: Mapping[str, str]) -> None:
        """Start a sensor."""
        self._done("startSensor", self._asked(_START, selector=dict(selector)))

    def _done(self, what: str, answer: Mapping[str, Any]) -> None:
        if answer[what]["__typename"] not in ("StopSensorMutationResult", "Sensor"):
            raise NoWebserver(f"{self.url}: {what} failed: {answer[what].get('message', answer[what]['__typename'])}")

    def _asked(self, query: str, **variables: Any) -> Mapping[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_WITHIN) as reply:
                found: Mapping[str, Any] | None = json.load(reply)["data"]
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise NoWebserver(f"the webserver at {self.url} does not answer: {error}") from error
        if found is None:
            raise NoWebserver(f"the webserver at {self.url} refused the request")
        return found
