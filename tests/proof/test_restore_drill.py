"""The restores of the runbook, on a deployment from the files of deploy/: each ends with all rows, each row once.

Databases of an earlier moment than the bucket, a lost catalog, a lost checkpoint, a deleted prefix of the warehouse.
"""

import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy

from dagster_tidemark.lakehouse.append import open_lake
from tests.live.waiting import eventually, holds_for
from tests.proof.conftest import Report
from tests.proof.deployed import DEPLOY, Deployed, deployed
from tests.proof.test_deploy import _LINE, _settings
from tests.tidemark.postgres import _program

QUIET_SECONDS = 45
_BUILT = """
SELECT count(*) FROM event_logs
WHERE dagster_event_type = 'ASSET_MATERIALIZATION' AND asset_key = '["core", "orders"]'
"""


class Drill:
    """A deployment, and the orders whose files were put into its bucket."""

    def __init__(self, platform: Deployed, report: Report) -> None:
        self.platform, self._report = platform, report
        self.orders: list[int] = []
        self.figures: dict[str, Any] = {"what": "seconds of each restore until all rows were there, and a new file too"}

    def put(self) -> int:
        """Put a file with one order of this hour."""
        number, now = 4_300_000_001 + len(self.orders), datetime.now(UTC)
        line = f"{number},1,1,101,1,3,2.50,0.1,{now:%Y-%m-%dT%H}:00:00Z\n"
        key = f"orders/dt={now:%Y-%m-%d}/hour={now:%H}/drill-{number}.csv"
        self.platform.aws("s3").put_object(Bucket="landing", Key=key, Body=(_LINE + line).encode())
        self.orders.append(number)
        return number

    def all_there(self) -> None:
        """Check that each order is a row, and once."""
        lake = open_lake(_settings(self.platform))
        assert lake.table_exists("core.orders")
        found = lake.load_table("core.orders").scan(selected_fields=("order_id",)).to_arrow()["order_id"].to_pylist()
        assert sorted(found) == self.orders

    def stop(self) -> None:
        """End daemon and code server, with their runs."""
        for name in ("daemon", "code"):
            self.platform.kill(name)

    def start(self) -> None:
        """Start code server and daemon."""
        for name in ("code", "daemon"):
            self.platform.start(name, self.platform._unit(f"tidemark-{name}"))

    def command(self, *arguments: str, code: int = 0) -> str:
        """Run a command of an operator, and return its output."""
        done = self.platform.tidemark(*arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def databases(self, what: str, folder: Path) -> None:
        """Run the script of deploy/."""
        done = subprocess.run(
            [DEPLOY / "databases.sh", what, folder], env=self.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        """The environment of the deployment, with PostgreSQL's programs and this machine's port, without TLS."""
        variables = self.platform.environment
        port = variables["TIDEMARK_CATALOG_URI"].rpartition("/")[0].rpartition(":")[2]
        pg_dump = shutil.which("pg_dump") or _program("pg_dump")
        return variables | {
            "PATH": f"{variables['PATH']}:{Path(str(pg_dump)).parent}",
            "DAGSTER_PG_PORT": port,
            "PGSSLMODE": "disable",
        }

    def sql(self, database: str, statement: str) -> int:
        """Execute a statement in a database, and return the number of rows."""
        variables = self.environment()
        url = sqlalchemy.URL.create(
            "postgresql+psycopg2",
            variables["DAGSTER_PG_USER"],
            variables["DAGSTER_PG_PASSWORD"],
            "127.0.0.1",
            int(variables["DAGSTER_PG_PORT"]),
            database,
        )
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        with engine.begin() as connection:
            done = connection.execute(sqlalchemy.text(statement))
            return int(done.scalar() or 0) if done.returns_rows else done.rowcount

    def ends_well(self, name: str, begun: float) -> None:
        """Check that old rows are there, and that a new file becomes a row."""
        self.put()
        eventually(self.all_there, seconds=420, every=1)
        self.figures[name] = round(time.monotonic() - begun, 1)
        self._report("restore-drill", self.figures)


def test_each_restore_of_the_runbook_ends_with_all_rows_once(tmp_path: Path, report: Report) -> None:
    with deployed(tmp_path, cluster=False) as platform:
        drill = Drill(platform, report)
        drill.put()
        eventually(drill.all_there, seconds=600, every=1)

        drill.databases("save", tmp_path / "dumps")
        drill.put()
        eventually(drill.all_there, seconds=300, every=1)
        drill.stop()
        time.sleep(60)  # `restore-catalog` refuses while the last heartbeat of a daemon is younger
        begun = time.monotonic()
        drill.databases("restore", tmp_path / "dumps")
        drill.all_there()
        drill.start()
        drill.ends_well("databases of an earlier moment", begun)

        drill.stop()
        drill.sql("lake", "DROP TABLE iceberg_tables, iceberg_namespace_properties")
        time.sleep(60)
        begun = time.monotonic()
        assert "core.orders: not in the catalog" in drill.command("restore-catalog", code=1)
        drill.command("restore-catalog", "--apply")
        drill.start()
        drill.ends_well("lost catalog", begun)

        drill.stop()
        # In the first ten minutes there is none yet: then this is a start without one.
        drill.sql("dagster", "DELETE FROM kvs WHERE key LIKE 'tidemark/history%'")
        before = drill.sql("dagster", _BUILT)
        drill.start()
        holds_for(lambda: _require(drill.sql("dagster", _BUILT) == before, "again"), seconds=QUIET_SECONDS, every=3)
        drill.ends_well("lost checkpoint", time.monotonic())

        drill.stop()
        _delete(platform, "warehouse/core/orders/")
        time.sleep(60)
        begun = time.monotonic()
        said = drill.command("restore-catalog", "--apply", code=1)
        assert "core.orders: no metadata file is left" in said and said.count("; restore the objects") == 1
        drill.command("restore-catalog", "--apply", "--drop", "core.orders")
        drill.start()
        drill.command("rebuild", "core/orders", "--reason", "drill")
        drill.ends_well("deleted prefix", begun)


def _delete(platform: Deployed, prefix: str) -> None:
    s3 = platform.aws("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix):
        for each in page.get("Contents", ()):
            s3.delete_object(Bucket="lake", Key=each["Key"])


def _require(holds: bool, otherwise: str) -> None:
    assert holds, otherwise
