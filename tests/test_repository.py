"""What a forge and a contributor's tools read: each file is well formed, pinned, and calls what the Makefile has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_continuous_integration_runs_what_a_person_can_run() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == [".ci/run", "make dist"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_continuous_integration_may_only_read_and_pins_every_action_by_its_commit() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def test_continuous_integration_tries_every_python_that_the_package_names() -> None:
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert read(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_the_hook_before_a_commit_runs_what_make_lint_runs() -> None:
    [repository] = read(".pre-commit-config.yaml")["repos"]
    [hook] = repository["hooks"]
    assert (repository["repo"], hook["entry"], hook["pass_filenames"]) == ("local", "make lint", False)


@pytest.mark.parametrize("form", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem)
def test_an_issue_form_asks_at_least_one_thing_that_must_be_answered(form: Path) -> None:
    asked = yaml.safe_load(form.read_text("utf-8"))
    assert asked["name"]
    assert asked["description"]
    assert any(field.get("validations", {}).get("required") for field in asked["body"])
    names = [field["id"] for field in asked["body"] if field["type"] != "markdown"]
    assert len(names) == len(set(names))
