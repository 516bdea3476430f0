"""Enrolment of sites: whose names which authority signs."""

import tarfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from edge_server.cli.main import main
from edge_server.security.identity.authority import open_authority


def enroll(folder: Path, *words: str) -> int:
    common = ("--federation", "home", "--host", "localhost", "--out", str(folder / "boards"))
    return main(["enroll", *words, *common])


def test_a_gateway_gets_a_certificate_named_after_its_site_and_options_for_its_service(tmp_path: Path):
    upper = tmp_path / "authority"
    assert enroll(tmp_path, "barn", "--gateway", "--authority", str(upper)) == 0
    with tarfile.open(tmp_path / "boards" / "barn.tar") as archive:
        files = {name: archive.extractfile(f"barn/{name}") for name in ("gateway.pem", "gateway.env")}
        read = {name: file.read() for name, file in files.items() if file is not None}
    (name,) = x509.load_pem_x509_certificate(read["gateway.pem"]).subject.get_attributes_for_oid(
        NameOID.COMMON_NAME
    )
    assert name.value == "barn"
    assert b"--federation home --site barn --upstream mqtts://localhost:8883" in read["gateway.env"]
    assert open_authority(upper).sites() == ["barn"]


def test_the_federations_authority_signs_no_device_of_a_site(tmp_path: Path, capsys):
    upper = str(tmp_path / "authority")
    enroll(tmp_path, "barn", "--gateway", "--authority", upper)
    assert enroll(tmp_path, "barn.pi-1", "--authority", upper) == 2
    assert "'barn.pi-1' belongs to the site 'barn', whose own authority enrols it" in capsys.readouterr().err
    assert enroll(tmp_path, "barn", "--authority", upper, "--renew") == 2
    assert "'barn' is a site: --gateway issues its gateway's certificate" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["attic.pi-1", "pi-1", "barnyard.pi"])
def test_the_authority_of_a_site_signs_no_device_of_others(tmp_path: Path, capsys, name: str):
    own = ("--within", "barn", "--authority", str(tmp_path / "barn-authority"))
    assert enroll(tmp_path, "barn.pi-1", *own) == 0
    capsys.readouterr()
    assert enroll(tmp_path, name, "--authority", str(tmp_path / "barn-authority")) == 2
    assert "is that of the site 'barn'" in capsys.readouterr().err


def test_the_federations_broker_does_not_know_a_sites_authority(tmp_path: Path):
    enroll(tmp_path, "barn", "--gateway", "--authority", str(tmp_path / "upper"))
    enroll(tmp_path, "barn.pi-1", "--within", "barn", "--authority", str(tmp_path / "lower"))
    trusted = (tmp_path / "upper" / "broker" / "ca.pem").read_bytes()
    upper, lower = (open_authority(tmp_path / name).root.certificate for name in ("upper", "lower"))
    assert x509.load_pem_x509_certificates(trusted) == [upper]
    with pytest.raises(InvalidSignature):
        lower.verify_directly_issued_by(upper)


def test_an_authority_does_not_become_that_of_a_site_later(tmp_path: Path, capsys):
    folder = str(tmp_path / "authority")
    enroll(tmp_path, "pi-1", "--authority", folder)
    assert enroll(tmp_path, "barn.pi-1", "--within", "barn", "--authority", folder) == 2
    assert "is that of a whole federation" in capsys.readouterr().err
