"""Prints one line about the answers of `edge-client infer --format json`: compare.py ANSWERS [OTHERS].

Exit code 1 where they differ. Processors differ in the last bits of their arithmetic: probabilities may be a
ten-thousandth apart.
"""

import json
import sys
from pathlib import Path

TOLERANCE = 1e-4


def answers(path: str) -> tuple[list[tuple[str, float]], float]:
    """The best class of each image with its probability, and the accuracy."""
    said = json.loads(Path(path).read_text())
    return [(result["top"][0]["name"], result["top"][0]["probability"]) for result in said["results"]], said[
        "accuracy"
    ]


mine, accuracy = answers(sys.argv[1])
line = f"{len(mine)} images, accuracy {accuracy:.1%}"
if len(sys.argv) == 2:
    sys.exit(print(line))
others, _ = answers(sys.argv[2])
same = sum(one == other for (one, _), (other, _) in zip(mine, others, strict=True))
apart = max(abs(one - other) for (_, one), (_, other) in zip(mine, others, strict=True))
print(f"{line}, {same} classes as here, probabilities at most {apart:.1e} apart")
sys.exit(same != len(mine) or apart > TOLERANCE)
