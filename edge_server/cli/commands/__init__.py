"""The verbs of `edge-server`: `HELP`, `EXAMPLES`, `OPTIONS` and `execute(args) -> int` each.

Heavy imports stay inside `execute`, so that `--help` is quick.
"""
