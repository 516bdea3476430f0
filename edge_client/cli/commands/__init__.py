"""The verbs of `edge-client`: `HELP`, `EXAMPLES`, `OPTIONS` and `execute(args) -> int` each.

Heavy imports stay inside `execute`, so that `--help` is quick and needs no optional package.
"""
