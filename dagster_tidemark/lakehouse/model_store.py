"""Storage of fitted models, and the interface that libraries implement.

A version of a model is named by a hash of its inputs. Each version has its own folder, which is written only once. A
killed fit leaves an incomplete folder, and the next fit with equal inputs completes it. The current version is the
newest published row in the table of the model's versions.

Belongs here: names, files and rows of versions. Does not belong here: any library, and the quality of a model.
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
"""File with the SHA-256 of each file of a version. It is written last, so a version without it is incomplete."""

Features = TypeVar("Features", contravariant=True)
Predictions = TypeVar("Predictions", covariant=True)
Given = TypeVar("Given")
Told = TypeVar("Told")


class NoSuchModel(Terminal):
    """Error for a version whose files are missing. Materialize the model's asset to fit the model again."""


class ModelDamaged(Terminal):
    """Error for a version with a changed file. Delete the version's folder and materialize the model's asset."""


class Model(Protocol[Features, Predictions]):
    """Fitted model, which can predict and be saved."""

    def predict(self, features: Features) -> Predictions:
        """Return one prediction per row of features."""
        ...

    def save(self, folder: Path) -> None:
        """Write all files that `Learner.load` needs to an empty folder."""
        ...


class Learner(Protocol[Features, Predictions]):
    """Adapter that fits models with a library: scikit-learn, pyspark.ml, LightGBM or your own.

    Features are pandas or Spark frames.
    """

    @property
    def parameters(self) -> Mapping[str, object]:
        """Values, including seeds, that determine the fitted model together with features and libraries."""
        ...

    @property
    def libraries(self) -> Mapping[str, str]:
        """Names and versions of the libraries that fit and load a model."""
        ...

    def fit(self, features: Features) -> Model[Features, Predictions]:
        """Return a fitted model. Equal features and parameters must give models with equal predictions."""
        ...

    def load(self, folder: Path) -> Model[Features, Predictions]:
        """Return the model that was saved into a folder."""
        ...


class ModelStore(Generic[Given, Told]):
    """Store of the versions of one model, each in a folder `<warehouse>/models/<name>/<version>/`.

    Args:
        name: The model's name.
        learner: The learner that fits and loads the model.
        settings: Settings with the location of the warehouse: a local folder or `s3://`.
    """

    def __init__(self, name: str, learner: Learner[Given, Told], settings: Settings) -> None:
        self._root = f"{settings.warehouse}/models/{name}"
        self.learner = learner
        self._files: _Files = _Bucket(settings) if "://" in settings.warehouse else _Disk()

    def version_of(self, *made_of: str) -> str:
        """Return the name of a version. It is equal for equal parameters, libraries and other inputs.

        Args:
            made_of: Other inputs, such as a digest of the features and the version of the code.
        """
        facts = [dict(self.learner.parameters), dict(self.learner.libraries), list(made_of)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def path(self, version: str) -> str:
        """Return the folder of a version."""
        return f"{self._root}/{version}"

    def holds(self, version: str) -> bool:
        """Return True if all files of a version exist."""
        return self._files.read(f"{self.path(version)}/{_CONTENTS}") is not None

    def save(self, version: str, model: Model[Given, Told]) -> str:
        """Save a model as a version, and return the path of the version. An existing version stays unchanged."""
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
        """Return the model of a saved version.

        Raises:
            NoSuchModel: the version does not exist, or is incomplete.
            ModelDamaged: a file of the version has changed.
        """
        path = self.path(version)
        contents = self._files.read(f"{path}/{_CONTENTS}")
        if contents is None:
            raise NoSuchModel(f"there is no complete model at {path}; materialize the model's asset to fit it again")
        with tempfile.TemporaryDirectory() as folder:
            for name, digest in json.loads(contents).items():
                body = self._files.read(f"{path}/{name}")
                if body is None or hashlib.sha256(body).hexdigest() != digest:
                    raise ModelDamaged(
                        f"{path}/{name} differs from the saved file; delete {path} and materialize the model"
                    )
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(body)
            return self.learner.load(Path(folder))


def current_version(versions: DataFrame) -> str | None:
    """Return the current version: the newest published row in a table of versions. None if no row is published."""
    newest = versions.where("published").orderBy(F.col("fitted_at").desc()).select("version").head(1)
    return newest[0]["version"] if newest else None


class ServingModel(Generic[Given, Told]):
    """Current version of a model, kept in memory. A newly published version replaces it.

    Args:
        store: Store of the versions.
        versions: Table of the versions, with the column `published`.
    """

    def __init__(self, store: ModelStore[Given, Told], versions: LiveTable) -> None:
        self._store = store
        self._versions = versions
        self._held: tuple[str, Model[Given, Told]] | None = None
        self._is_known = False

    def current(self) -> tuple[str, Model[Given, Told]] | None:
        """Return the current version and its model; None if no version is published. Each call checks the table.

        Raises:
            NoSuchModel: files of the version are missing.
            ModelDamaged: a file of the version has changed.
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
    """Files by full path. A write is atomic: it stores the whole file or nothing."""

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
        raise Terminal(f"{path}: expected a local folder or an s3:// path for models; set TIDEMARK_WAREHOUSE")
    return address.netloc, address.path.lstrip("/")
