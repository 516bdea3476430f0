"""Wheels of a small client with the command `edge-client`, made by hand, and releases of them."""

import zipfile
from pathlib import Path

from edge_client.storage.atomic_files import file_sha256
from edge_client.storage.client_archive import describe_wheels, write_archive
from schemas.messages import ClientOffer
from schemas.messages.client_update import UpdateTerms
from schemas.security.client_release import ClientRelease, fits_of
from schemas.security.manifest import Manifest
from schemas.tensors.chunks import BlobRef
from tests.edge_client.signed import SERVER

DOCTOR = 'print("[]")'
CODE = """\
import os
import sys

{head}

def main():
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "doctor":
        {doctor}
        return 0
    if verb == "run":
        with open(os.path.join(os.environ["EDGE_CLIENT_ROOT"], "log"), "a") as log:
            print("{version}", sys.argv[2:], file=log)
        {run}
    return 0
"""


def make_wheel(
    folder: Path,
    version: str,
    *,
    head: str = "",
    doctor: str = DOCTOR,
    run: str = "pass",
    tags: str = "py3-none-any",
    needs: str = "Provides-Extra: onnx-client\nProvides-Extra: trust\n",
) -> Path:
    """A wheel of `edge-federation` whose module and verbs run these lines; `needs` ends its metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"edge_federation-{version}-{tags}.whl"
    info = f"edge_federation-{version}.dist-info"
    files = {
        "small_client.py": CODE.format(head=head, doctor=doctor, run=run, version=version),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: edge-federation\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n",
        f"{info}/entry_points.txt": "[console_scripts]\nedge-client = small_client:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(name), text)
    return path


def make_release(path: Path, *wheels: Path, **more: object) -> Path:
    """An archive of these wheels."""
    fields: dict[str, object] = {
        "version": wheels[0].name.split("-")[1],
        "fits": fits_of([wheel.name for wheel in wheels]),
        "installed_bytes": 10_000,
        "wheels": describe_wheels(wheels),
    }
    write_archive(path, ClientRelease.model_validate({**fields, **more}), wheels)
    return path


def manifest_of(archive: Path, name: str, *, issued_at: int = 1_700_000_000) -> Manifest:
    """What the operator signs."""
    return Manifest(
        what="client-release",
        federation="home",
        run=name,
        round=0,
        sha256=file_sha256(archive),
        issued_at=issued_at,
    )


def offer_of(archive: Path, version: str, *, rollout: str = "r-1", **terms: float) -> ClientOffer:
    """The offer of an archive, signed by the server."""
    ref = BlobRef(digest=file_sha256(archive), size=archive.stat().st_size, chunk_bytes=4096)
    return ClientOffer(
        federation="home",
        device="pi",
        rollout=rollout,
        version=version,
        blob=ref,
        manifest=SERVER.sign(manifest_of(archive, version)),
        fits=("any",),
        terms=UpdateTerms.model_validate(terms),
    )
