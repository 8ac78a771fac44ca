"""`pipelines status --services`: each process of the platform, its port, its memory and how often it was restarted."""

import json

from tests.live.platform import Platform


def test_every_service_is_shown_with_what_it_holds(platform: Platform) -> None:
    shown = json.loads(platform.pipelines("status", "--services", "--json").stdout)

    by_name = {service["service"]: service for service in shown}
    assert set(by_name) == {"cloud", "spark", "kafka", "feed", "runs", "dagster"}
    for name, setting in {"cloud": "CLOUD", "spark": "SPARK", "dagster": "UI"}.items():
        assert by_name[name]["port"] == int(platform.environment[f"TIDEMARK_PORT_{setting}"])
    for name in ("cloud", "spark", "runs", "dagster"):
        service = by_name[name]
        assert service["state"] == "ready"
        assert service["pid"] in {process.pid for process in platform.processes()}
        assert service["memory_mb"] > 10
    assert by_name["feed"]["pid"] is by_name["kafka"]["pid"] is None  # started without them
