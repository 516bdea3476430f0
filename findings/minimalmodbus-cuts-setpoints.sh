#!/usr/bin/env bash
# Guess: minimalmodbus writes 0.29 with two decimals as 29 into the register, and what `read_register` gave can be written back
# as it was.
# What happens: it multiplies as a float and cuts: 0.29 becomes 28. Of the 1000 values from 0.00 to 9.99, 69 are written one step
# too low, and a set point of 1.16 that is read and written back becomes 1.15, then 1.14, 1.13 and 1.12. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet minimalmodbus==2.1.1
cat > try.py <<'PYTHON'
import minimalmodbus
import serial


class Device(serial.SerialBase):
    """A port with one device behind it that has a single register."""

    in_waiting, register, answer = 0, 0, b""

    def _reconfigure_port(self) -> None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def reset_input_buffer(self) -> None: ...
    def reset_output_buffer(self) -> None: ...

    def write(self, request: bytes) -> int:
        if request[1] == 6:
            self.register, body = int.from_bytes(request[4:6], "big"), request[:-2]
        else:
            body = request[:2] + bytes([2]) + self.register.to_bytes(2, "big")
        self.answer = body + minimalmodbus._calculate_crc(body)
        return len(request)

    def read(self, size: int = 1) -> bytes:
        taken, self.answer = self.answer[:size], self.answer[size:]
        return taken


port = Device()
port.is_open = True
instrument = minimalmodbus.Instrument(port, 1)


def written(value: float, decimals: int) -> int:
    instrument.write_register(0, value, decimals, functioncode=6)
    return port.register


print("minimalmodbus", minimalmodbus.__version__)
print("0.29 is written as", written(0.29, 2), "and read as", instrument.read_register(0, 2))
low = sum(written(step / 100, 2) == step - 1 for step in range(1000))
print("of the values from 0.00 to 9.99 too low by one step:", low)
steps = [116]
for _ in range(5):
    port.register = steps[-1]
    steps.append(written(instrument.read_register(0, 2), 2))
print("read and written back:", steps)
assert written(0.29, 2) == 28 and instrument.read_register(0, 2) == 0.28
assert 50 < low < 100 and steps == [116, 115, 114, 113, 112, 112]
PYTHON
venv/bin/python try.py
# Seen: 0.29 is written as 28 and read as 0.28; read and written back: [116, 115, 114, 113, 112, 112]
