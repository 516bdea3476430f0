"""What runs on a board: agent, models, attention, pruning, training, export, inference."""

from edge_client.system.schemas_package import claim_schemas

claim_schemas()
