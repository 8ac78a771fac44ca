"""Where every command's error ends: one line on stderr, and an exit code that means something.

0: done. 1: the world was in the way. 2: a wrong setting, option or declaration. 3: nothing runs. 4: removals were held
back, a contract is broken, or a rehearsal is above the share. 5: an asset is set aside and nobody looks after it. 6:
files are in quarantine as a whole.
"""

from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from pipelines.tidemark.errors import TidemarkError

_OF_OTHERS = {"botocore", "pyspark"}
"""Libraries whose errors are the world's: a service did not do what it was asked."""


class Commands(TyperGroup):
    """A group of commands whose errors end in one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            fail(str(error), code=error.exit_code)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _OF_OTHERS:
                raise
            fail(str(error).partition("\n")[0], code=1)


def fail(message: str, *, code: int) -> NoReturn:
    """End a command that did not do what it was asked."""
    typer.echo(f"pipelines: {message}", err=True)
    raise typer.Exit(code)
