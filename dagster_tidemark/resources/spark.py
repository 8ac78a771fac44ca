"""The Spark session of a run."""

from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.session import SECONDS_OF_A_RESTART, new_session, without_token
from dagster_tidemark.settings import Settings


class SparkResource(LazyPySparkResource):
    """The run's own session, created on first use and stopped at the end of the run.

    A Spark Connect session that is never stopped keeps its temporary views and caches on the server, and can make the
    interpreter hang at exit.

    Args:
        settings: Settings of the deployment. They are not part of Dagster's configuration, which the UI shows.
    """

    settings: dg.ResourceDependency[Settings]
    spark_config: dict[str, Any] = Field(default_factory=dict)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = new_session(self.settings, wait_seconds=SECONDS_OF_A_RESTART)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        if self._spark_session is not None:
            session, self._spark_session = self._spark_session, None
            try:
                session.stop()
            except Exception as error:  # the server is gone; the run has its result already
                if context.log:
                    context.log.warning(f"the Spark session could not be stopped: {without_token(str(error))}")

    @property
    def session(self) -> SparkSession:
        """The run's Spark session.

        Raises:
            SparkUnreachable: `SPARK_REMOTE` names a server that does not answer.
        """
        session: SparkSession = self.spark_session
        return session
