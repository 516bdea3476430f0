"""The device runtime, and the library that device and server share."""

from edge_client.system.schemas_package import claim_schemas

claim_schemas()
