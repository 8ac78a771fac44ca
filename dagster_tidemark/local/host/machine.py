"""Requirements of the platform on a machine: Python 3.11 to 3.13, Java 17 or 21.

Belongs here: checks that need nothing installed. The Makefile runs this file before the virtual environment exists,
with any Python that it finds. Does not belong here: anything that imports a package.
"""

import os
import re
import subprocess
import sys

PYTHONS = ((3, 11), (3, 12), (3, 13))
JAVAS = (17, 21)


# Valid in any Python 3: it also runs on the versions that it reports as too old.
def complaint() -> str:
    """Return the unmet requirement in one line; empty if all are met."""
    major, minor = sys.version_info[:2]
    if (major, minor) not in PYTHONS:
        return f"Python {major}.{minor} is not supported; use 3.11 to 3.13, such as make PYTHON=python3.12"
    version = java_version()
    if not version:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME={home} has no working Java" if home else "no Java found"
        return f"{where}; install Java 17 or 21, and put it on PATH or set JAVA_HOME"
    if version not in JAVAS:
        return f"Java {version} is not supported; use 17 or 21, and set JAVA_HOME to it"
    return ""


def java_version() -> int:
    """Return the major version of the Java that Spark will use; 0 if there is none."""
    try:
        asked = [java_command(), "-version"]
        answer = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stdout.decode(errors="replace"))
    return int(found.group(1)) if found and answer.returncode == 0 else 0


def java_command() -> str:
    """Return the command of the Java that Spark will use."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


if __name__ == "__main__":
    sys.exit(complaint() or None)
