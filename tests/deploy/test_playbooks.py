"""The playbooks use valid options of our commands, name existing files and do not log secrets."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, documents, objects, unknown_arguments

FOLDER = DEPLOY / "ansible"
FILES = sorted(FOLDER.rglob("*.yaml"))
SECRET = re.compile(r"--code|server\.key|/broker/\"|authority \}\}/(broker|server)/")


def tasks() -> list[tuple[Path, dict[str, Any]]]:
    """Every named task, with its file."""
    return [
        (path, mapping)
        for path in FILES
        for document in documents(path)
        for mapping in objects(document)
        if "name" in mapping and any("." in str(key) for key in mapping)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_file_is_valid_yaml(path):
    assert documents(path)


def test_our_commands_accept_the_options():
    seen = []
    for path, task in tasks():
        lists = [value for mapping in objects(task) for value in mapping.values() if isinstance(value, list)]
        for words in (item for item in lists if "enroll" in item):
            at = words.index("enroll")
            command = "edge-server" if "edge_server" in words[at - 1] else "edge-client"
            assert unknown_arguments(command, [str(word) for word in words[at:]]) == [], path
            seen.append(command)
    assert sorted(set(seen)) == ["edge-client", "edge-server"]


def test_tasks_with_secrets_are_not_logged():
    held = [
        (path, task)
        for path, task in tasks()
        if SECRET.search(str({k: v for k, v in task.items() if k != "block"}))
    ]
    assert len(held) >= 3
    quiet = {"ansible.builtin.template", "ansible.builtin.file"}
    for path, task in held:
        if "block" not in task and not quiet & set(task) and task.get("mode") != "0644":
            assert task.get("no_log") is True or "mosquitto.conf" in str(task), (path.name, task["name"])


def test_the_copied_units_exist():
    text = "".join(path.read_text() for path in FILES if "roles" in path.parts)
    named = set(re.findall(r"edge-[a-z-]+\.service", text))
    assert named == {"edge-client.service", "edge-client-serve.service", "edge-server.service"}
    assert all((DEPLOY / "systemd" / name).is_file() for name in named)


def test_the_templates_exist():
    for path, task in tasks():
        if "ansible.builtin.template" in task:
            name = task["ansible.builtin.template"]["src"]
            assert (path.parents[1] / "templates" / name).is_file()


@pytest.mark.parametrize("script", ["arm64.sh", "register.sh"])
def test_the_scripts_of_arm64_are_valid_shell(script):
    path = DEPLOY / "arm64" / script
    shell = "bash" if "bash" in path.read_text().partition("\n")[0] else "sh"
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
