#!/usr/bin/env bash
# Guess: LightPHE, which adds and scales encrypted vectors, as of models whose average a server forms without seeing them,
# multiplies one by a fraction as its documentation does by 1.05; what cannot be computed is refused.
# What happens: 0.1, 0.2, 0.4 and 0.5 are right, but 0.3 multiplies by 0.2, 0.6 by 0.5, 0.7 by 0.6 and 1.2 by 1.1, as the
# remainder of a binary fraction is cut; a third gives numbers of 300 digits. The mean of two equal models with shares of 0.3 and
# 0.7 is 0.8 of them, without a word.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet lightphe==0.0.27
cat > try.py <<'PYTHON'
from importlib.metadata import version

from lightphe import LightPHE

MODEL = [0.25, -0.5, 2.0]
scheme = LightPHE(algorithm_name="Paillier", key_size=1024)
encrypted = scheme.encrypt(MODEL, silent=True)


def scale(made: object) -> float:
    """By what a vector was multiplied, alike in each of its values."""
    decrypted = scheme.decrypt(made)
    scales = [value / given for value, given in zip(decrypted, MODEL, strict=True)]
    assert max(scales) - min(scales) < 1e-3 * max(scales)
    return round(scales[0], 3)


print("lightphe", version("lightphe"))
seen = {factor: scale(encrypted * factor) for factor in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.2)}
mean = scale(encrypted * 0.3 + encrypted * 0.7)
third = scheme.decrypt(encrypted * (1 / 3))[0]
print("multiplied by:", seen, "0.3 + 0.7:", mean, "a third of 0.25:", third)
assert all(seen[factor] == factor for factor in (0.1, 0.2, 0.4, 0.5, 0.8, 0.9))
assert (seen[0.3], seen[0.6], seen[0.7], seen[1.2]) == (0.2, 0.5, 0.6, 1.1)
assert mean == 0.8 and third > 1e100
PYTHON
venv/bin/python try.py
# Seen: 0.3: 0.2, 0.4: 0.4, 0.5: 0.5, 0.6: 0.5, 0.7: 0.6; 0.3 + 0.7: 0.8, a third of 0.25: 1.07e+301
