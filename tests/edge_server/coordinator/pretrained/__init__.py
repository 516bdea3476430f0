import edge_client  # noqa: F401  Before torchvision: with a torch for processors alone it needs our guard.
