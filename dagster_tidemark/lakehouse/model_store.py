"""Fitted models: what a library is to this project, and where a fitted model lies.

A version is named by what it was made of, and its files lie at a path of their own that is never written again. So a
fit that is killed leaves files that nobody refers to, and the next equal fit finds or completes them. Which version is
current is a matter of rows: the newest published one in the table of the model's versions.

Belongs here: names, files and rows of versions. Does not belong here: any library, and whether a model is good.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import ClientError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.errors import Terminal
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from dagster_tidemark.lakehouse.cached_reader import LiveTable

_CONTENTS = "contents.json"
"""Name to SHA-256 of each file of a version. Written last: a version without it is not complete."""

Features = TypeVar("Features", contravariant=True)
Predictions = TypeVar("Predictions", covariant=True)
Given = TypeVar("Given")
Told = TypeVar("Told")


class NoSuchModel(Terminal):
    """A version has no files, or not all of them. Fit it again: materialize the model's asset."""


class ModelDamaged(Terminal):
    """A file of a version is not the one that was saved. Delete the version's folder and materialize the model."""


class Model(Protocol[Features, Predictions]):
    """A fitted model: it predicts, and it can be kept."""

    def predict(self, features: Features) -> Predictions:
        """One prediction per row of features."""
        ...

    def save(self, folder: Path) -> None:
        """Write all that `Learner.load` needs into an empty folder."""
        ...


class Learner(Protocol[Features, Predictions]):
    """A way to fit models: scikit-learn, pyspark.ml, LightGBM or your own. Features are pandas or Spark frames."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """All that decides how a model turns out, beside the features and the libraries. Seeds are among it."""
        ...

    @property
    def libraries(self) -> Mapping[str, str]:
        """The libraries that fit and load a model, with their versions."""
        ...

    def fit(self, features: Features) -> Model[Features, Predictions]:
        """A model. Equal features and parameters give equal predictions."""
        ...

    def load(self, folder: Path) -> Model[Features, Predictions]:
        """The model that was saved into a folder."""
        ...


class ModelStore(Generic[Given, Told]):
    """The versions of one model, each in a folder `<warehouse>/models/<name>/<version>/`.

    Args:
        name: The model's name.
        learner: What fits and loads it.
        settings: Say where the warehouse is: a local folder or `s3://`.
    """

    def __init__(self, name: str, learner: Learner[Given, Told], settings: Settings) -> None:
        self._root = f"{settings.warehouse}/models/{name}"
        self.learner = learner
        self._files: _Files = _Bucket(settings) if "://" in settings.warehouse else _Disk()

    def version_of(self, *made_of: str) -> str:
        """The name of a version: equal for equal parameters, libraries and whatever else it is made of.

        Args:
            made_of: A digest of the features, the version of the code, and the like.
        """
        facts = [dict(self.learner.parameters), dict(self.learner.libraries), list(made_of)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def path(self, version: str) -> str:
        """The folder of a version."""
        return f"{self._root}/{version}"

    def holds(self, version: str) -> bool:
        """Whether all files of a version are there."""
        return self._files.read(f"{self.path(version)}/{_CONTENTS}") is not None

    def save(self, version: str, model: Model[Given, Told]) -> str:
        """Keep a model under its version, and return its path. One that is there stays as it is."""
        path = self.path(version)
        if self.holds(version):
            return path
        contents = {}
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder))
            for name, body in _files_in(Path(folder)):
                self._files.write(f"{path}/{name}", body)
                contents[name] = hashlib.sha256(body).hexdigest()
        self._files.write(f"{path}/{_CONTENTS}", json.dumps(contents).encode())
        return path

    def load(self, version: str) -> Model[Given, Told]:
        """A version that was saved, however long ago.

        Raises:
            NoSuchModel: it is not there, or not complete.
            ModelDamaged: a file of it has changed.
        """
        path = self.path(version)
        contents = self._files.read(f"{path}/{_CONTENTS}")
        if contents is None:
            raise NoSuchModel(f"there is no complete model at {path}; materialize the model's asset to fit it again")
        with tempfile.TemporaryDirectory() as folder:
            for name, digest in json.loads(contents).items():
                body = self._files.read(f"{path}/{name}")
                if body is None or hashlib.sha256(body).hexdigest() != digest:
                    raise ModelDamaged(f"{path}/{name} is not what was saved; delete {path} and materialize the model")
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(body)
            return self.learner.load(Path(folder))


def current_version(versions: DataFrame) -> str | None:
    """The version that serves: the newest published one of a table of versions. None before the first."""
    newest = versions.where("published").orderBy(F.col("fitted_at").desc()).select("version").head(1)
    return newest[0]["version"] if newest else None


class ServingModel(Generic[Given, Told]):
    """The version that serves, held ready. Another takes its place as soon as it is published.

    Args:
        store: Where the versions are kept.
        versions: The table that says which of them are published.
    """

    def __init__(self, store: ModelStore[Given, Told], versions: LiveTable) -> None:
        self._store = store
        self._versions = versions
        self._held: tuple[str, Model[Given, Told]] | None = None
        self._is_known = False

    def current(self) -> tuple[str, Model[Given, Told]] | None:
        """The version and the model, after a look at the table; None before the first is published.

        Raises:
            NoSuchModel: its files are not there.
            ModelDamaged: a file of it has changed.
        """
        self._is_known = not self._versions.refresh() and self._is_known
        if not self._is_known:
            version = self._newest()
            if version != (self._held and self._held[0]):
                self._held = None if version is None else (version, self._store.load(version))
            self._is_known = True
        return self._held

    def _newest(self) -> str | None:
        rows = self._versions.rows(("version", "published", "fitted_at")).to_pylist()
        newest = max((row for row in rows if row["published"]), key=lambda row: row["fitted_at"], default=None)
        return None if newest is None else str(newest["version"])


def _files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield str(PurePosixPath(file.relative_to(folder))), file.read_bytes()


class _Files(Protocol):
    """Files by their full path; a file that is written is there as a whole or not at all."""

    def read(self, path: str) -> bytes | None: ...

    def write(self, path: str, body: bytes) -> None: ...


class _Disk:
    def read(self, path: str) -> bytes | None:
        file = Path(path)
        return file.read_bytes() if file.is_file() else None

    def write(self, path: str, body: bytes) -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        with beside.open("wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)


class _Bucket:
    def __init__(self, settings: Settings) -> None:
        self._client: Any = boto3.client("s3", **settings.aws_options())

    def read(self, path: str) -> bytes | None:
        bucket, key = _address(path)
        try:
            body: bytes = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                return None
            raise
        return body

    def write(self, path: str, body: bytes) -> None:
        bucket, key = _address(path)
        self._client.put_object(Bucket=bucket, Key=key, Body=body)


def _address(path: str) -> tuple[str, str]:
    address = urlsplit(path)
    if address.scheme not in ("s3", "s3a"):
        raise Terminal(f"{path}: models are kept in a local folder or below s3://; see TIDEMARK_WAREHOUSE")
    return address.netloc, address.path.lstrip("/")
