"""Data files that code reads: each way to name one makes a change of the file change the fingerprint.

A path is a Python expression here, and running it shows that it reads the file: the tests do not know how the
fingerprint finds paths.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dagster_tidemark.code_versions.fingerprint import Fingerprint
from tests.tidemark.code_versions.packages import Package, fingerprint

AT_MODULE = "from pathlib import Path\nHERE = Path(__file__)\nROOT = HERE.resolve().parents[2]\nNAME = 'rates'\n"
WAYS = {
    # Path(__file__)
    "parents": "Path(__file__).parents[2] / 'data' / 'rates.csv'",
    "parent of parent": "Path(__file__).parent.parent.parent / 'data/rates.csv'",
    "parents of absolute": "Path(__file__).absolute().parents[2].joinpath('data', 'rates.csv')",
    "a constant": "ROOT / 'data' / 'rates.csv'",
    "a name from a constant": "ROOT / 'data' / f'{NAME}.csv'",
    "a constant of another module": "places.DATA / 'rates.csv'",
    "an imported constant": "DATA / 'rates.csv'",
    "with_name": "(ROOT / 'data' / 'other.csv').with_name('rates.csv')",
    "with_suffix": "(ROOT / 'data' / 'rates').with_suffix('.csv')",
    "dots": "Path(__file__).parent / '..' / '..' / 'data' / 'rates.csv'",
    "dirname": "os.path.join(os.path.dirname(__file__), '..', '..', 'data', 'rates.csv')",
    "dirname of dirname": "os.path.join(dirname(dirname(dirname(os.path.abspath(__file__)))), 'data', 'rates.csv')",
    "a text of it": "f'{ROOT}/data/rates.csv'",
    "added": "str(ROOT) + '/data/' + NAME + '.csv'",
    # packages
    "a package's file": "resources.files('toy.tables') / 'rates.csv'",
    "a package's file, joined": "files('toy.tables').joinpath('rates.csv')",
    "a package by module": "resources.files(tables).joinpath('rates.csv')",
    # from the project's root
    "a text": "'data/rates.csv'",
    "a joined text": "os.path.join('data', 'rates.csv')",
    "a path of a text": "Path('data') / 'rates.csv'",
    "a file at the root": "'rates.csv'",
    "an added text": "'data/' + NAME + '.csv'",
    "the working folder": "Path.cwd() / 'data' / 'rates.csv'",
    "the working folder as text": "os.path.join(os.getcwd(), 'data', 'rates.csv')",
    "an empty path": "Path() / 'data' / 'rates.csv'",
    # one of many
    "one of a folder": "ROOT / 'data' / name",
    "one of a folder as text": "f'data/{name}'",
    "the first of a glob": "next((ROOT / 'data').glob('rates*.csv'))",
    "the first of glob": "glob.glob('data/rates*.csv')[0]",
    "in a folder below": "next(Path('data').rglob('deep.csv'))",
}
IMPORTS = (
    "import glob, json, os, pkgutil, sys\nfrom importlib import resources\nfrom importlib.resources import files\n"
    "from os.path import dirname\nfrom toy.sub import places\nfrom toy.sub.places import DATA\nfrom toy import tables\n"
)
READS = {
    "open": "open(PATH).read()",
    "with open": "(lambda: [*map(str, open(PATH))])()",
    "a path's text": "Path(PATH).read_text()",
    "in bytes": "Path(PATH).open('rb').read()",
}
WHOLE = {
    "get_data": "pkgutil.get_data('toy.tables', 'rates.csv')",
    "read_text": "resources.read_text('toy.tables', 'rates.csv')",
    "a local variable": "load()",
    "a loop": "''.join(path.read_text() for path in sorted((ROOT / 'data').iterdir()) if path.is_file())",
    "a json": "len(str(json.load(open(ROOT / 'data' / 'rates.json'))))",
    "listed": "[open(os.path.join('data', n)).read() for n in os.listdir('data') if n.endswith('.csv')]",
}
DATA_FILES = ("data/rates.csv", "data/rates.json", "data/below/deep.csv", "toy/tables/rates.csv", "rates.csv")


def package(expression: str) -> Package:
    body = f"""
def load():
    folder = ROOT / 'data'
    path = folder / 'rates.csv'
    with open(path) as file:
        return file.read()


def total(name='rates.csv'):
    return {expression}
"""
    return {
        "__init__.py": "",
        "sub/places.py": "from pathlib import Path\nDATA = Path(__file__).parents[2] / 'data'\n",
        "sub/assets.py": IMPORTS + AT_MODULE + body,
        "tables/__init__.py": "",
    }


def in_a_project(root: Path, expression: str, number: int) -> tuple[Fingerprint, str]:
    """Return the fingerprint, and the output of the code, which shows the file that it read."""
    for name in DATA_FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[{number}]")
    found = fingerprint(root, package(expression), start="sub.assets.total")
    code = "from toy.sub.assets import total; print(total())"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return found, done.stdout


CASES = {f"{way}, {read}": READS[read].replace("PATH", WAYS[way]) for way in WAYS for read in READS}
CHOSEN = {name: text for n, (name, text) in enumerate(CASES.items()) if n % len(READS) == n // len(READS) % len(READS)}
"""Each way once: running Python takes its time."""


@pytest.mark.parametrize("expression", [*CHOSEN.values(), *WHOLE.values()], ids=[*CHOSEN, *WHOLE])
def test_fingerprint_changes_when_a_data_file_that_code_reads_changes(expression: str, tmp_path: Path) -> None:
    before, read = in_a_project(tmp_path / "1", expression, 1)
    after, read_then = in_a_project(tmp_path / "2", expression, 22)

    assert read != read_then, "the code reads it"
    assert before.digest != after.digest
    assert before.undecided == ()


@pytest.mark.parametrize("expression", CASES.values(), ids=CASES)
def test_fingerprint_ignores_a_file_in_a_folder_that_code_does_not_read(expression: str, tmp_path: Path) -> None:
    """The file is in another folder, because in a listed folder every file counts."""
    for number in ("1", "2"):
        folder = tmp_path / number / "notes"
        folder.mkdir(parents=True)
        (folder / "n.txt").write_text(number)
    found = []
    for number in ("1", "2"):
        for name in DATA_FILES:
            path = tmp_path / number / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("1")
        found.append(fingerprint(tmp_path / number, package(expression), start="sub.assets.total"))
    assert found[0].digest == found[1].digest


@pytest.mark.parametrize(
    "reads",
    [
        "open(name)",
        "Path(os.environ['RATES']).read_text()",
        "(ROOT / name).read_text()",
        "open('/etc/hostname')",
        "json.load(open(sys.argv[1]))",
        "spark.read.csv(name)",
        "pd.read_csv(where())",
        "where(ROOT)",
        "open(file=name)",
    ],
)
def test_fingerprint_reports_the_line_of_a_file_read_that_it_cannot_resolve(reads: str, tmp_path: Path) -> None:
    text = f"import pandas as pd\ndef total(name, spark, where): return {reads}"
    found = fingerprint(tmp_path, {"sub/assets.py": IMPORTS + AT_MODULE + text, **BASE}, start="sub.assets.total")
    (said,) = found.undecided
    assert said.startswith("toy/sub/assets.py: total(), line 13: ")


BASE = {"sub/places.py": "DATA = 1", "tables/__init__.py": ""}


@pytest.mark.parametrize(
    "reads",
    ["spark.read.csv('s3://lake/rates.csv')", "spark.read.parquet(f's3://lake/{name}')", "spark.table('core.orders')"],
)
def test_fingerprint_ignores_reads_of_lake_tables_and_files(reads: str, tmp_path: Path) -> None:
    text = f"def total(name, spark): return {reads}"
    assert fingerprint(tmp_path, {"assets.py": text}).undecided == ()


def test_fingerprint_includes_data_files_named_in_sql(tmp_path: Path) -> None:
    text = textwrap.dedent("""
        import duckdb
        def total(): return duckdb.sql("SELECT * FROM 'data/rates.csv' JOIN read_csv('data/more-*.csv') USING (id)")
    """)
    found = []
    for number, more in (("1", "1"), ("2", "1"), ("3", "2")):
        (tmp_path / number / "data").mkdir(parents=True)
        (tmp_path / number / "data" / "rates.csv").write_text("2" if number == "2" else "1")
        (tmp_path / number / "data" / "more-a.csv").write_text(more)
        found.append(fingerprint(tmp_path / number, {"assets.py": text}).digest)
    assert len(set(found)) == 3
