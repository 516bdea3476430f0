#!/usr/bin/env bash
# Guess: TenSEAL, by which servers add up encrypted models and readings, refuses a number that its parameters do not hold, as it
# refuses one multiplication too many; at least, the other numbers of a vector stay right.
# What happens: with the parameters of its tutorials a meter's 2.5 million Wh, multiplied by 0.5 and by 2, comes back as any
# number below a million, and the 21 degrees beside it as hundreds of thousands, others at each try. Whole numbers (BFV) wrap
# already where they are encrypted: 600000 is -432193, as is a sum of two times 300000. Only a third multiplication is refused.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet tenseal==0.3.18
cat > try.py <<'PYTHON'
from importlib.metadata import version

import tenseal

print("tenseal", version("tenseal"))
floats = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
floats.global_scale = 2**40
floats.generate_galois_keys()
energy, temperature = 2_500_000.0, 21.0
once = tenseal.ckks_vector(floats, [energy, temperature]) * 0.5
twice = once * 2.0
print(f"{energy} Wh and {temperature} degrees times 0.5:", once.decrypt(), "and times 2:", twice.decrypt())
assert abs(once.decrypt()[0] - energy / 2) < 10 and abs(once.decrypt()[1] - temperature / 2) < 0.1
assert max(abs(got - right) for got, right in zip(twice.decrypt(), (energy, temperature), strict=True)) > 100_000
assert abs(twice.decrypt()[1] - temperature) > 1000
small = tenseal.ckks_vector(floats, [energy / 1000, temperature]) * 0.5 * 2.0
assert abs(small.decrypt()[0] - energy / 1000) < 0.1 and abs(small.decrypt()[1] - temperature) < 0.1
try:
    twice * 1.0
except ValueError as error:
    print("a third time:", error)
else:
    raise AssertionError("a third multiplication was not refused")
whole = tenseal.context(tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=4096, plain_modulus=1032193)
counted = tenseal.bfv_vector(whole, [300_000])
direct, added = tenseal.bfv_vector(whole, [600_000]).decrypt(), (counted + counted).decrypt()
print("600000 as a whole number:", direct, "300000 twice:", added)
assert direct == added == [600_000 - 1_032_193]
PYTHON
venv/bin/python try.py
# Seen: times 0.5: [1250000.17, 10.50], and times 2: [-31484.4, 434355.4]; 600000 as a whole number: [-432193]
