"""Python programs of tests, each forked from a process that has other people's libraries loaded.

A new Python needs two seconds of a processor to import Dagster, pandas and pyspark, and the tests start a hundred. Here
each program still is a process with its own arguments, folder, environment, output and exit code, and it imports all
code of this project itself. Does not belong here: a program that a test kills or talks to, and one about which modules
Python imports, or how it starts; those use `subprocess`.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import pickle
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_LIBRARIES = (
    "boto3.s3.transfer",
    "cronsim",
    "dagster",
    "dagster._cli",
    "dagster_aws.s3",
    "dagster_dg_cli.cli",
    "dagster_pyspark",
    "grpc._channel",
    "pandas",
    "pyarrow.csv",
    "pyarrow.parquet",
    "pydantic_settings",
    "pyspark.sql.connect.session",
    "sqlalchemy",
    "tenacity",
    "typer.testing",
    "upath.implementations.local",
)
"""Not pyiceberg, which reads the environment when it is imported."""
_OF_TESTS = ("AWS_", "DAGSTER_", "PYICEBERG_", "PYTHON", "SPARK_", "TIDEMARK_")
"""Beginnings of variables that a test may set. By them a platform knows its processes, and libraries their defaults."""
_SCRIPTS = {"dg": "dagster_dg_cli.cli", "tidemark": "dagster_tidemark.cli.app"}
_LENGTH = struct.Struct("!I")
_server: "_Server | None" = None


def run_python(
    arguments: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> "subprocess.CompletedProcess[str]":
    """Run Python as `subprocess.run([sys.executable, *arguments], capture_output=True, text=True)` does.

    Args:
        arguments: `-c CODE` or `-m MODULE` after options `-P` and `-W ACTION`, if any, and the program's arguments.
        cwd: Folder to run in.
        env: The whole environment.
        timeout: Seconds.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    global _server
    if _server is None:
        _server = _Server()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        wanted = {
            "arguments": [*arguments],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        try:
            code = _server.run(wanted, out.fileno(), error.fileno(), timeout)
        except subprocess.TimeoutExpired:
            raise
        except BaseException:
            # As when the test's time is over. The program's exit code would be taken for that of the next program.
            stop()
            raise
        texts = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess([sys.executable, *arguments], code, *texts)


def run_script(
    name: str,
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 200,
) -> "subprocess.CompletedProcess[str]":
    """Run `dg` or `tidemark`, as their scripts beside Python do. The folder of the scripts is first in the path."""
    path = str(Path(sys.executable).with_name(name))
    code = (
        f"import sys; sys.path.insert(0, {str(Path(path).parent)!r}); sys.argv[0] = {path!r}; "
        f"from {_SCRIPTS[name]} import main; sys.exit(main())"
    )
    return run_python(["-P", "-c", code, *arguments], cwd=cwd, env=env, timeout=timeout)


def stop() -> None:
    """End the process with the libraries, if there is one."""
    global _server
    if _server is not None:
        _server.stop()
        _server = None


class _Server:
    """The process with the libraries, as the tests see it. It ends when its socket is closed, thus with the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs, ExitStack() as unless_started:
            unless_started.callback(self._socket.close)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith(_OF_TESTS)},
            )
            unless_started.pop_all()

    def stop(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(20)

    def run(self, wanted: dict[str, Any], out: int, error: int, timeout: float) -> int:
        message = pickle.dumps(wanted)
        socket.send_fds(self._socket, [_LENGTH.pack(len(message))], [out, error])
        self._socket.sendall(message)
        pid = _number(self._socket)
        self._socket.settimeout(timeout)
        try:
            return _number(self._socket) - 256
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            _number(self._socket)
            raise subprocess.TimeoutExpired(wanted["arguments"], timeout) from None
        finally:
            self._socket.settimeout(None)


def _number(connection: socket.socket) -> int:
    received = connection.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(received) < _LENGTH.size:
        raise EOFError("the process that forks the programs of tests has ended")
    number: int = _LENGTH.unpack(received)[0]
    return number


def _end_with_parent(by: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, by)  # PR_SET_PDEATHSIG


def _serve(connection: socket.socket) -> None:
    """Fork a process for each program, one after the other."""
    for name in _LIBRARIES:
        import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 2, socket.MSG_WAITALL)
        if not header:
            return
        wanted = pickle.loads(connection.recv(_LENGTH.unpack(header)[0], socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            connection.close()
            _end_with_parent(signal.SIGKILL)
            _become(wanted, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(_LENGTH.pack(pid))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(_LENGTH.pack(status + 256))  # killed by a signal: negative


def _become(wanted: dict[str, Any], out: int, error: int) -> NoReturn:
    """Turn a child into the program, and end as Python does."""
    code = 1
    try:
        os.dup2(out, 1), os.dup2(error, 2)
        os.close(out), os.close(error)
        os.environ.clear()
        os.environ.update(wanted["env"])
        os.chdir(wanted["cwd"])
        _run([*wanted["arguments"]])
        code = 0
    except SystemExit as ended:
        code = _code(ended)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # threads go on when the program ends
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print(ended.code, file=sys.stderr)
    return 1


def _run(arguments: list[str]) -> None:
    """Run the program in this process, with the modules and the path that it had in a new one."""
    first, actions = [str(Path.cwd())], os.environ.get("PYTHONWARNINGS", "").split(",")
    while arguments[0] in ("-P", "-W"):
        if arguments.pop(0) == "-P":
            first = []
        else:
            actions.append(arguments.pop(0))
    warnings._processoptions(filter(None, actions))  # type: ignore[attr-defined]
    sys.path[0:1] = [*first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    option, what, *own = arguments
    if option == "-m":
        sys.argv = [what, *own]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *own]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)
    else:
        raise ValueError(f"expected -c or -m, found {option}; use subprocess for other programs")


if __name__ == "__main__":
    _end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with socket.socket(fileno=int(sys.argv[1])) as to_tests:
        _serve(to_tests)
