"""The device runtime, and the library that device and server share."""

from edge_client.system.torchvision_compat import guard_torchvision
from edge_client.system.user_code import claim_schemas

claim_schemas()
guard_torchvision()
