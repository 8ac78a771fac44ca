"""Files that `dg scaffold defs` writes: valid components, which the user then edits."""

from pathlib import Path
from typing import Any, NoReturn

import click
import dagster as dg
from pydantic import BaseModel, Field


def _write(request: dg.ScaffoldRequest[Any], attributes: str, **files: str) -> None:
    """Write the files of a new component."""
    name = request.target_path.name
    if request.append or request.scaffold_format != "yaml":
        _refuse(request, f"{request.type_name} can only be written in YAML, one component per folder")
    if not (name.isidentifier() and name.isascii()):
        _refuse(request, f"{name!r} is not a table name; use letters, digits and _")
    (request.target_path / "defs.yaml").write_text(f"type: {request.type_name}\n\n{attributes}")
    for module, text in files.items():
        (request.target_path / f"{module}.py").write_text(text)


def _refuse(request: dg.ScaffoldRequest[Any], message: str) -> NoReturn:
    """End the command `dg` with a one-line error, and remove the empty folder that it has created."""
    if request.target_path.is_dir() and not any(request.target_path.iterdir()):
        request.target_path.rmdir()
    raise click.ClickException(message)


class TableParameters(BaseModel):
    """Parameters of `dg scaffold defs` for a table."""

    reads: str = Field("core/orders", description="The asset that the table is computed from.")


class TableScaffolder(dg.Scaffolder[TableParameters]):
    """Writer of a table with daily partitions, and of the function that computes it."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableParameters]:
        """Return the model of the parameters."""
        return TableParameters

    def scaffold(self, request: dg.ScaffoldRequest[TableParameters]) -> None:
        """Write `defs.yaml` and `transform.py`."""
        name, reads = request.target_path.name, request.params.reads
        module = ".".join(request.target_path.relative_to(request.project_root or Path()).parts).removeprefix("src.")
        attributes = f"""attributes:
  name: marts.{name}
  columns:
    day: date
    lines: bigint
  row_key: [day]
  partitioned_by: day
  comment: A day
  ins:
    rows: {reads}  # the asset that each parameter of the transform reads
  partitions: day
  fresh:
    hours: 24
  transform: {module}.transform:{name}
  code_version: "1"
"""
        transform = f'''from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def {name}(rows: DataFrame) -> DataFrame:
    """One row per day: how many rows {reads} has."""
    return rows.groupBy("day").agg(F.count("*").alias("lines"))
'''
        _write(request, attributes, transform=transform)


class FeedScaffolder(dg.Scaffolder):
    """Writer of a feed with a folder of files for each day."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write `defs.yaml`."""
        name = request.target_path.name
        attributes = f"""attributes:
  name: {name}
  grain: day  # files land below {name}/dt=YYYY-MM-DD/
  columns:
    id: bigint
    remark: string
    happened_at: timestamp
  key: [id]
  rules:
    wrong_day: to_date(happened_at) = day
  comment: A record of {name}
  tags:
    tidemark/pace: asap
  code_version: "1"
"""
        _write(request, attributes)
