"""The list of all pages is complete, and its links are valid."""

import re
import runpy
import tomllib

import yaml

from edge_client.cli.main import EDGE_CLIENT
from edge_server.cli.main import EDGE_SERVER
from tests.deploy.files import DEPLOY

FILE = DEPLOY / "llms.txt"


def test_the_list_contains_exactly_the_existing_pages() -> None:
    generated = runpy.run_path(str(DEPLOY / "contents.py"))["contents"]()
    assert FILE.read_text() == generated, "run `make contents` to update it"


def test_the_list_has_the_format_of_llms_txt() -> None:
    lines = FILE.read_text().split("\n")
    assert lines[0].startswith("# ")
    assert lines[2].startswith("> ")
    for line in lines[3:]:
        assert not line or re.match(r"## \w|- \[[^\]]+\]\([^)]+\)(: .+)?$", line), line


def test_every_link_is_valid() -> None:
    links = re.findall(r"\]\(([^)]+)\)", FILE.read_text())
    assert len(links) == len(set(links)) > 30
    assert [link for link in links if not (DEPLOY / link).is_file()] == []


def test_the_package_readmes_name_every_command() -> None:
    for program, page in ((EDGE_SERVER, "edge_server"), (EDGE_CLIENT, "edge_client")):
        text = (DEPLOY.parent / page / "README.md").read_text()
        verbs = [verb.__name__.rpartition(".")[2].replace("_", "-") for verb in program.verbs]
        missing = [verb for verb in verbs if f"{program.prog} {verb}" not in text]
        assert missing == []


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((DEPLOY / "CITATION.cff").read_text())
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
