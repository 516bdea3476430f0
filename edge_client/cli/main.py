"""The command `edge-client`: one verb, one file under `commands`."""

import sys
from collections.abc import Sequence

from edge_client.cli.app import CommandLine
from edge_client.cli.commands import bench, doctor, enroll, infer, install, profile, record, run, serve

EDGE_CLIENT = CommandLine(
    prog="edge-client",
    extra="client",
    description="What runs on a device of the federation.",
    examples="""\
examples:
  edge-client run --broker mqtt://server:1883 --device-id pi-kitchen --data folder:photos
  edge-client record room.sqlite --column co2=home/office/co2      sensors' messages become examples
  edge-client enroll --code CODE                   get a certificate of one's own
  edge-client install RELEASE.tar --root DIR --trust signing.pub     a client that can be updated
  edge-client profile                              what this board is, and how fast
  edge-client doctor --config client.toml          what is wrong here, and the remedy
  edge-client infer model.onnx photo.png           what is in the picture
  edge-client serve model.onnx                     answer requests over HTTP, and MQTT too
  edge-client bench model.onnx --threads 4         how fast this machine is

exit codes: 0 done, 1 failed, 2 bad usage or configuration
""",
    verbs=(run, install, record, enroll, profile, doctor, infer, serve, bench),
)


def main(argv: Sequence[str] | None = None) -> int:
    return EDGE_CLIENT.run(argv)


if __name__ == "__main__":
    sys.exit(main())
