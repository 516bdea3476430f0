"""Record payloads with Eclipse Tahu's own schema, for `test_payload.py` to compare with.

    protoc --python_out=. sparkplug_b.proto      (of eclipse-tahu/tahu at 5736e404, folder sparkplug_b)
    python -m tests.edge_server.observability.integrations.sparkplug.record (`sparkplug_b_pb2` on the path)

Tahu's files are under EPL-2.0 and are not copied; only the recorded bytes are stored here.
"""

from pathlib import Path

GOLDEN = Path(__file__).with_name("golden")
NOW = 1_700_000_000_000


def main() -> None:
    """Write a birth, a data, a death and a rebirth payload."""
    import sparkplug_b_pb2 as tahu

    birth = tahu.Payload(timestamp=NOW, seq=0)
    birth.metrics.add(name="bdSeq", timestamp=NOW, datatype=tahu.Int64, long_value=7)
    birth.metrics.add(name="Node Control/Rebirth", timestamp=NOW, datatype=tahu.Boolean, boolean_value=False)
    birth.metrics.add(name="Run/Phase", timestamp=NOW, datatype=tahu.String, string_value="träge")
    birth.metrics.add(name="Run/Accuracy", timestamp=NOW, datatype=tahu.Double, is_null=True)
    birth.metrics.add(name="Run/Round", timestamp=NOW, datatype=tahu.UInt64, long_value=3)
    birth.metrics.add(name="Offset", timestamp=NOW, datatype=tahu.Int64, long_value=2**64 - 5)
    data = tahu.Payload(timestamp=NOW + 1, seq=255)
    data.metrics.add(name="Run/Accuracy", timestamp=NOW + 1, double_value=0.875)
    death = tahu.Payload(timestamp=NOW)
    death.metrics.add(name="bdSeq", timestamp=NOW, datatype=tahu.Int64, long_value=7)
    command = tahu.Payload(timestamp=NOW)
    command.metrics.add(name="Node Control/Rebirth", datatype=tahu.Boolean, boolean_value=True)
    for name, payload in (("birth", birth), ("data", data), ("death", death), ("rebirth", command)):
        (GOLDEN / f"{name}.bin").write_bytes(payload.SerializeToString())


if __name__ == "__main__":
    main()
