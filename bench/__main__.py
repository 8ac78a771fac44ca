"""`make bench`: all benchmarks, a table on the screen and a report in bench/report.json."""

import json
import os
import platform as machine
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from bench import latency, messages, throughput
from bench.contestants import Baseline, ours
from dagster_tidemark.local.spark.class_archive import record_classes
from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources.sqs import SqsQueue
from tests.checkout import CHECKOUT
from tests.conftest import end_service, make_settings, start_service
from tests.live.platform import Platform

_REPORT = CHECKOUT / "bench" / "report.json"
_PARTS = "start,latency,messages,throughput"


def main(
    parts: Annotated[str, typer.Option(help="Parts to run; the report keeps the results of other parts.")] = _PARTS,
    rounds: Annotated[int, typer.Option(help="Number of files for each contestant.")] = 20,
    lines: Annotated[int, typer.Option(help="Number of order lines in the throughput benchmark.")] = 5_000_000,
    warm_up: Annotated[bool, typer.Option(help="Warm up and repeat. Without it the figures mean little.")] = True,
    to: Annotated[Path, typer.Option(help="File of the report.", dir_okay=False)] = _REPORT,
) -> None:
    """Measure, print, and write the report."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # often set in containers; each run would compile its code
    fetch_jars(load_settings())
    record_classes(load_settings())
    report: dict[str, Any] = json.loads(to.read_text()) if to.exists() else {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if "throughput" in parts:
            report["throughput"] = _about() | _throughput(Path(folder), lines, min(rounds, 3), warm_up)
        if any(part in parts for part in ("start", "latency", "messages")):
            found = _platforms(Path(folder), parts, rounds, warm_up)
            report |= {name: _about() | figures for name, figures in found.items()}
    to.write_text(json.dumps(report, indent=2) + "\n")
    _show(report)


def _throughput(folder: Path, lines: int, rounds: int, warm_up: bool) -> dict[str, Any]:
    settings = make_settings(folder / "throughput")
    settings.state_dir.mkdir()
    cloud = start_service("dagster_tidemark.local.cloud.server", settings, settings.port_cloud, folder / "cloud.log")
    spark = start_service("dagster_tidemark.local.spark.server", settings, settings.port_spark, folder / "spark.log")
    try:
        return throughput.measure(settings, lines=lines, rounds=rounds, warm_up=warm_up)
    finally:
        end_service(spark)
        end_service(cloud)


def _platforms(folder: Path, parts: str, rounds: int, warm_up: bool) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    platform = Platform(folder / "tidemark", load_settings().jars_dir, folder / "up.log")
    platform.asked["TIDEMARK_CONTRACT_SCALE"] = "1"  # full-length contracts: marts must not disturb measured runs
    baselines: list[Baseline] = []
    try:
        starts = [platform.start()]
        if "start" in parts:
            stops = []
            for _ in range(2 if warm_up else 0):
                stops.append(round(platform.stop(signal.SIGINT).seconds, 1))
                starts.append(platform.start())
            found["start"] = {
                "what": "seconds to the UI with an empty home, then again; jars and virtual environment exist",
                **dict(zip(("empty home", "second start", "third start"), (round(s, 1) for s in starts), strict=False)),
                **({"stop": stops[-1]} if stops else {}),
            }
        names = ["stock", "tuned"] if "latency" in parts and warm_up else ["stock"]
        if "latency" not in parts and "messages" not in parts:
            return found
        baselines = [Baseline(name, platform, folder) for name in names]
        for baseline in baselines:
            platform.s3.create_bucket(Bucket=baseline.name)
        queues = [_listener(platform, name) for name in ("tidemark", "stock")] if "messages" in parts else []
        with ThreadPoolExecutor(2) as threads:
            contestants = [ours(platform), *threads.map(Baseline.start, baselines)]
        # Without a warm-up the figures mean little, so the two parts may disturb each other.
        with ThreadPoolExecutor(1 if warm_up else 2) as threads:
            running = {}
            if "latency" in parts:
                running["latency"] = threads.submit(
                    latency.measure, contestants, platform.s3, rounds=rounds, warm_up=warm_up
                )
            if "messages" in parts:
                running["messages"] = threads.submit(messages.measure, queues, rounds=rounds, warm_up=warm_up)
            found |= {part: done.result() for part, done in running.items()}
        if "latency" in parts:
            found["memory"] = {
                "what": "MB of each contestant's processes, idle after the benchmark (PSS)",
                "contestants": {c.name: c.memory_mb() for c in contestants},
            }
    finally:
        for baseline in baselines:
            baseline.stop()
        platform.end()
    return found


def _listener(platform: Platform, name: str) -> messages.Listener:
    """Return a contestant with its two queues."""
    if name == "tidemark":
        names = ("cold-chain-readings", "alerts")
    else:
        names = (f"{name}-readings", f"{name}-alerts")
        for queue in names:
            platform.sqs.create_queue(QueueName=queue)
    return messages.Listener(name, *(SqsQueue(platform.sqs, queue) for queue in names))


def _about() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip(),
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GB, {machine.machine()}",
        "load before": os.getloadavg()[0],
        "versions": {"python": machine.python_version()}
        | {name: version(name) for name in ("dagster", "pyspark", "pyiceberg", "moto")},
    }


def _show(report: dict[str, Any]) -> None:
    console = Console()
    if "latency" in report:
        table = Table("put_object to commit", "median s", "p95 s", "n", "times ours")
        by = report["latency"]["contestants"]
        for name, found in by.items():
            ratio = f"{found['median'] / by['tidemark']['median']:.1f}"
            table.add_row(name, str(found["median"]), str(found["p95"]), str(found["n"]), ratio)
        console.print(table)
    if "messages" in report:
        table = Table("reading to alert", "median s", "p95 s", "n")
        for name, found in report["messages"]["contestants"].items():
            table.add_row(name, str(found["median"]), str(found["p95"]), str(found["n"]))
        console.print(table, f"ratio of the medians {report['messages']['ratio of the medians']}")
    if "throughput" in report:
        table = Table("rows per second", "tidemark", "script", "ratio", "naive", "ratio")
        for name, found in report["throughput"]["tables"].items():
            rates, ratios = found["rows per second"], found["ratio"]
            shown = [(f"{rates[of]:,}", str(ratios[of])) if of in rates else ("", "") for of in ("script", "naive")]
            table.add_row(name, f"{rates['tidemark']:,}", *shown[0], *shown[1])
        console.print(table)
    for part in ("start", "memory"):
        if part in report:
            console.print({name: value for name, value in report[part].items() if name not in ("versions", "machine")})


if __name__ == "__main__":
    typer.run(main)
