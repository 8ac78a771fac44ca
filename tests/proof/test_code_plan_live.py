"""A dozen deploys on a real daemon: `tidemark plan` lists what then runs, and `--apply` brings it about.

The code location's code is a file; what each deploy has to list, and what has to run, is written down by hand.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dagster_tidemark.local.host import process_tree
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.shapes_bodies import put
from tests.proof.shapes_platform import ToyPlatform, toy_platform

Code = dict[str, dict[str, Any]]
Built = set[tuple[str, str | None]]

FIRST: Code = {
    "core/a": {"reads": ["raw/days"], "version": 1},
    "core/b": {"reads": ["core/a"], "version": 1},
    "marts/all": {"reads": ["core/b"], "version": 1, "by": "one"},
    "marts/alone": {"reads": ["raw/one"], "version": 1, "by": "one"},
}
DAYS = ("2026-10-01", "2026-10-02", "2026-10-03")
_QUIET = 15.0


def days(*assets: str, of: Collection[str] = DAYS) -> Built:
    """All days of some assets."""
    return {(asset, day) for asset in assets for day in of}


@dataclass(frozen=True)
class Deploy:
    """A change of the code.

    Args:
        listed: Partitions that the plan has, beside those it says are held.
        ran: Those that are built after it; by default all that are listed.
        identical: Assets whose values do not depend on the change.
        held: Assets whose partitions are listed as held.
    """

    what: str
    code: Code
    listed: Built
    ran: Built | None = None
    identical: Collection[str] = ()
    held: Collection[str] = ()
    running: str = ""


def deploys() -> list[Deploy]:
    """In their order; each goes on from the one before."""
    found: list[Deploy] = []
    code = FIRST

    def deploy(what: str, listed: Built, changes: Code, **more: Any) -> None:
        nonlocal code
        code = {key: each for key, each in (code | changes).items() if each}
        found.append(Deploy(what, code, listed, **more))

    def changed(name: str, **fields: Any) -> Code:
        return {name: code[name] | fields}

    all_below_a: Built = days("core/a", "core/b") | {("marts/all", None)}
    deploy("nothing", set(), {})
    deploy("bump", all_below_a, changed("core/a", version=2))
    below_b: Built = days("core/b") | {("marts/all", None)}
    deploy("identical output", below_b, changed("core/b", version=2), ran=days("core/b"), identical=["core/b"])
    deploy("added", days("core/c"), {"core/c": {"reads": ["core/a"], "version": 1}})
    deploy(
        "two bumps",
        days("core/c") | {("marts/alone", None)},
        changed("core/c", version=2) | changed("marts/alone", version=2),
    )
    deploy("another input", days("core/c"), changed("core/c", version=3, reads=["core/a", "core/b"]))
    deploy("not automated any more", set(), changed("core/c", version=4, automated=False), held=["core/c"])
    deploy("automated again", days("core/c"), changed("core/c", automated=True))
    deploy("removed", set(), {"core/c": {}})
    deploy("earlier start", days("core/a", of=["2026-09-30"]), changed("core/a", start="2026-09-30"))
    deploy(
        "during a run",
        days("core/a", of=["2026-09-30", *DAYS]) | below_b,
        changed("core/a", version=3),
        running="core/a",
    )
    deploy("bump and back", set(), {})
    deploy("a bump at the end", {("marts/all", None)}, changed("marts/all", version=2))
    return found


def test_plan_lists_exactly_what_runs_on_a_real_daemon(tmp_path: Path, report: Report) -> None:
    told: dict[str, dict[str, Any]] = {}
    with toy_platform(tmp_path, None, {"plan": "plan_location/definitions"}) as toy:
        _write(toy, FIRST, ())
        toy.start()
        toy.land("raw/one")
        for day in ("2026-09-30", *DAYS):
            toy.land("raw/days", day)
        first: Built = days("core/a", "core/b") | {("marts/all", None), ("marts/alone", None)}
        eventually(lambda: _has(toy, 0.0, first), seconds=180, every=1)
        for deploy in deploys():
            told[deploy.what] = _deployed(toy, deploy)
    report("code-plan-live", told)
    assert {what: said["faults"] for what, said in told.items() if said["faults"]} == {}


def test_rebuild_is_completed_once_after_a_kill_of_any_process(tmp_path: Path, report: Report) -> None:
    below: Built = days("core/a", "core/b") | {("marts/all", None)}
    told: dict[str, list[str]] = {}
    with toy_platform(tmp_path, None, {"plan": "plan_location/definitions"}) as toy:
        _write(toy, FIRST, ())
        toy.start()
        toy.land("raw/one")
        for day in DAYS:
            toy.land("raw/days", day)
        eventually(lambda: _has(toy, 0.0, below | {("marts/alone", None)}), seconds=180, every=1)
        for version, victim in enumerate(("run", "dagster._daemon", "dagster api grpc"), 2):
            began, since = len(toy.asked("core/a")), time.time()
            gate = toy.order("closed", "core/a", DAYS[0])
            _write(toy, FIRST | {"core/a": FIRST["core/a"] | {"version": version}}, ())
            toy.ui.reload()
            toy.wait_asked("core/a", began + 1)
            if victim == "run":
                toy.order("killed", "core/a", DAYS[0])
            else:
                victims = [p for p in process_tree.marked(toy.mark) if victim in " ".join(p.cmdline())]
                assert victims, f"no process is {victim}"
                for process in victims:
                    process.kill()
                toy.stop()
                toy.start()
            gate.unlink()
            eventually(partial(_has, toy, since, below), seconds=240, every=1)
            time.sleep(_QUIET)
            times = Counter((n, p) for n in FIRST for note in toy.built(n) if note.at > since for p in note.partitions)
            told[victim] = [f"{key} {times[key]} times" for key in sorted(times, key=str) if times[key] != 1]
            told[victim] += [
                f"{name} is {toy.value(name, p)}" for name, p in below if not _is_of(toy, name, p, version)
            ]
    report("code-plan-kills", {"killed in the middle of a rebuild, and what was wrong then": told})
    assert not any(told.values()), told


def _is_of(toy: ToyPlatform, name: str, partition: str | None, version: int) -> bool:
    """Whether a value was made by this version of core/a."""
    return f"core/a {version}" in (toy.value(name, partition) or "")


def _deployed(toy: ToyPlatform, deploy: Deploy) -> dict[str, Any]:
    gate = toy.order("closed", deploy.running, DAYS[-1]) if deploy.running else None
    if gate:
        began = len(toy.asked(deploy.running))
        toy.land("raw/days", DAYS[-1], "2")
        toy.wait_asked(deploy.running, began + 1)
    if deploy.what == "bump and back":
        _write(toy, {name: each | {"version": 99} for name, each in deploy.code.items()}, ())
        assert _pipelines(toy, "plan").returncode == 2
    _write(toy, deploy.code, deploy.identical)
    since = time.time()
    said = _pipelines(toy, "plan", "--json")
    faults = [] if said.returncode in (0, 2) else [said.stderr[-2000:]]
    assets = json.loads(said.stdout)["assets"] if not faults else []
    listed = {(a["key"], p) for a in assets for p in a["partitions"] if str(p) not in a["held"]}
    held = {a["key"] for a in assets if a["held"]}
    if listed != deploy.listed:
        faults.append(f"listed {sorted(listed, key=str)}, expected {sorted(deploy.listed, key=str)}")
    if held != set(deploy.held):
        faults.append(f"held {held}, expected {deploy.held}")
    if said.returncode != (2 if deploy.listed or deploy.held else 0):
        faults.append(f"exit code {said.returncode}")
    if gate:
        gate.unlink()
    applied = _pipelines(toy, "plan", "--apply") if deploy.listed else None
    if applied is None:
        toy.ui.query("mutation { reloadWorkspace { __typename } }")
    elif applied.returncode:
        faults.append(f"--apply: {applied.stderr[-2000:]}")
    ran = deploy.listed if deploy.ran is None else deploy.ran
    try:
        eventually(lambda: _has(toy, since, ran), seconds=90, every=1)
    except AssertionError as error:
        faults.append(str(error))
    time.sleep(_QUIET)
    if more := _built(toy, since) - ran:
        faults.append(f"ran and was not listed: {sorted(more, key=str)}")
    print(f"{deploy.what}: {faults or 'as listed'}", flush=True)
    return {"listed": len(listed), "ran": len(ran), "applied": applied is not None, "faults": faults}


def _has(toy: ToyPlatform, since: float, expected: Built) -> None:
    missing = expected - _built(toy, since)
    assert not missing, f"not built: {sorted(missing, key=str)}"


def _built(toy: ToyPlatform, since: float) -> Built:
    names = {name for deploy in deploys() for name in deploy.code}
    return {(name, p) for name in names for note in toy.built(name) if note.at > since for p in note.partitions}


def _write(toy: ToyPlatform, code: Code, identical: Collection[str]) -> None:
    (toy.room / "code.json").write_text(json.dumps(code))
    for name, each in code.items():
        if name not in identical:
            put(toy.room, f"code/{name}", None, f"{name} {each['version']}")


def _pipelines(toy: ToyPlatform, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dagster_tidemark.cli.app", *arguments],
        env=toy.environment | {"TIDEMARK_CODE_LOCATION": "tests.proof.plan_location"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
