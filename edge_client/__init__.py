"""The device runtime, and the library that device and server share."""

from edge_client.system.schemas_package import claim_schemas
from edge_client.system.torchvision_compat import guard_torchvision

claim_schemas()
guard_torchvision()
