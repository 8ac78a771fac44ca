"""The project is found from the working directory or by `TIDEMARK_PROJECT`, and anything else is refused by name."""

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dagster_tidemark
from dagster_tidemark.cli.app import app
from dagster_tidemark.project_folder import NoProject, code_location, project_root
from dagster_tidemark.settings import NO_PACKAGE, load_settings

TABLE = '[tool.tidemark]\npackage = "acme.lake"\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TIDEMARK_PROJECT", "TIDEMARK_CODE_LOCATION", "TIDEMARK_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "project"
    (root / "deep" / "below").mkdir(parents=True)
    (root / "pyproject.toml").write_text(TABLE)
    (root / "deep" / "pyproject.toml").write_text("[project]\nname = 'another'\n")  # no project of ours
    monkeypatch.chdir(root / "deep" / "below")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "no environment"))
    return root


def test_nearest_folder_with_a_tidemark_table_is_the_project(project: Path) -> None:
    assert project_root() == project
    settings = load_settings()
    assert (settings.project, settings.code_location) == (project, "acme.lake")
    assert settings.state_dir == project / ".tidemark"
    assert settings.exports()["TIDEMARK_PROJECT"] == str(project)


def test_environment_variables_override_the_project_folder_and_its_table(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "other")
    settings = load_settings()
    assert (settings.project, settings.code_location, settings.state_dir) == (tmp_path, "other", tmp_path / ".tidemark")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool", "pyproject.toml cannot be read: "),
        ("[tool.tidemark]\n", "names no code location: add package = "),
        ("[tool.tidemark]\npackage = 3\n", "package = 3; expected a package name"),
    ],
)
def test_invalid_project_file_is_refused(project: Path, text: str, said: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(NoProject, match=said):
        load_settings()


@pytest.mark.parametrize("text", [None, "[tool.other]\n"])
def test_command_outside_a_project_is_refused_but_settings_load(project: Path, text: str | None) -> None:
    (project / "pyproject.toml").unlink()
    if text is not None:
        (project / "pyproject.toml").write_text(text)
    settings = load_settings()
    assert (settings.project, settings.code_location) == (None, NO_PACKAGE)
    assert "TIDEMARK_PROJECT" not in settings.exports()
    said = "no pyproject.toml with [tool.tidemark] in "
    with pytest.raises(NoProject, match="go into the project's folder, or set TIDEMARK_PROJECT"):
        assert settings.root
    for command in (["status"], ["plan"], ["lock", "check"], ["new", "feed", "a", "--sample", __file__], ["env"]):
        ended = CliRunner().invoke(app, command)
        assert (
            ended.exit_code == 2
            and ended.output.startswith(f"tidemark: {said}")
            and len(ended.output.splitlines()) == 1
        )
    assert CliRunner().invoke(app, ["status", "--help"]).exit_code == 0


def test_project_of_the_virtual_environment_is_found_from_any_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.prefix", str(project / ".venv"))
    assert project_root() == project


def test_missing_project_folder_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PROJECT", str(project / "gone"))
    with pytest.raises(NoProject, match="gone: there is no such folder"):
        project_root()


def test_project_without_a_package_has_no_code_location(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.tidemark]\n")
    assert code_location(project) is None


def test_no_module_computes_a_path_from_its_own_file() -> None:
    """The exception is lazy_loader, which finds the list of public names beside the module that it is called for."""
    found = []
    for path in sorted(Path(dagster_tidemark.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text())
        given = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and "attach_stub" in ast.dump(each.func)]
        allowed = {id(name) for call in given for name in call.args}
        found += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == "__file__" and id(node) not in allowed
        ]
    assert not found
