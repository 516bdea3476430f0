"""The verbs of `edge-server`: `register(subparsers)` and `execute(args) -> int` each.

Heavy imports stay inside `execute`, so that `--help` is quick.
"""
