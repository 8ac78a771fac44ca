"""Can this machine run the platform: Python 3.11 to 3.13, Java 17 or 21.

Belongs here: checks that need nothing installed; the Makefile runs this file before there is a virtual
environment, with whatever Python it finds. Does not belong here: anything that imports a package.
"""

import os
import re
import subprocess
import sys

PYTHONS = ((3, 11), (3, 12), (3, 13))
JAVAS = (17, 21)


def complaint(python=sys.version_info[:2]):  # type: ignore[no-untyped-def]  # an old Python has to get this far
    """One line on what is wrong, or None."""
    if tuple(python) not in PYTHONS:
        return "Python {}.{} does not do: 3.11, 3.12 or 3.13 is needed (make PYTHON=python3.12 names one)".format(*python)
    version = java_version()
    if version is None:
        return "no Java found: Java 17 or 21 is needed, on PATH or as JAVA_HOME"
    if version not in JAVAS:
        return "Java {} does not do: 17 or 21 is needed (Spark and Iceberg); JAVA_HOME names one".format(version)
    return None


def java_version():  # type: ignore[no-untyped-def]
    """The major version of the Java that Spark will use, or None."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    try:
        answer = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stdout.decode(errors="replace"))
    return int(found.group(1)) if found and answer.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(complaint())
