"""The command line `edge-server`: its verbs, its options and the demo."""
