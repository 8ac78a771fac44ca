"""The request to the platform's webserver to reload the code."""

import json
import urllib.request
from typing import Any

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.settings import Settings

_WITHIN = 120.0
_RELOAD = "mutation { reloadWorkspace { __typename ... on PythonError { message } } }"


class NoWebserver(Transient):
    """The platform's webserver does not answer, or answers with an error."""


class OtherCode(Terminal):
    """After a reload the running code location still does not have this folder's code."""


def reload_code(settings: Settings) -> None:
    """Reload the code locations of the platform on this host.

    Raises:
        NoWebserver: the webserver does not answer.
        OtherCode: the code cannot be loaded.
    """
    url = f"http://127.0.0.1:{settings.port_ui}/graphql"
    request = urllib.request.Request(url, json.dumps({"query": _RELOAD}).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_WITHIN) as reply:
            answer: dict[str, Any] = json.load(reply)["data"]["reloadWorkspace"]
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise NoWebserver(
            f"the webserver at {url} does not answer: {error}; the code was not reloaded: deploy it in your usual way, "
            "and the sensors request the runs"
        ) from error
    if answer["__typename"] == "PythonError":
        raise OtherCode(f"the code cannot be loaded: {answer['message'].strip()}")
