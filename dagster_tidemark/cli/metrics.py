"""`tidemark metrics`: serve figures for Prometheus, and the health of the deployment."""

from typing import Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.errors import Transient
from dagster_tidemark.settings import load_settings

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def metrics(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9464,
) -> None:
    """Serve /metrics for Prometheus and /healthz, until Ctrl-C.

    Both read what `tidemark status --json` reads. /healthz answers with 503 if a part is down or its state is unknown.
    """
    try:
        from dagster_tidemark.cli.monitoring.server import MetricsServer, Monitor
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        fail("`metrics` needs the extra: pip install 'dagster-tidemark[metrics]'", code=2)
    from dagster_tidemark.local.platform.instance_lock import take_environment

    settings = take_environment(load_settings())
    try:
        server = MetricsServer((host, port), Monitor.of(settings))
    except OSError as error:
        raise Transient(f"{host}:{port} cannot be opened ({error}); choose another with --host and --port") from error
    if host not in _LOOPBACK:
        typer.echo(f"tidemark: {host} is reachable from other hosts, and needs no login", err=True)
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{shown}:{server.server_address[1]}/metrics and /healthz", err=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
