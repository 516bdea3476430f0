"""The command line `edge-client`: its verbs, its options and its output."""
