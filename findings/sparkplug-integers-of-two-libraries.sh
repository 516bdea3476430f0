#!/usr/bin/env bash
# Guess: two libraries of Sparkplug B read each other's whole numbers, since the specification has a table of their types.
# What happens: the field for them is unsigned, and it is used in two ways. pysparkplug's Int8 of -1 is 255 to
# sparkplug-payload (Eclipse Tahu's, for Node.js); its UInt32 has no value there at all, as it is looked for in the field of 64
# bits. The other way round, pysparkplug refuses a message with an Int8 of -1, of which Tahu sends 32 bits, whole.
# Only Int32, Int64 and UInt64 survive both ways; each library alone reads what it wrote.
set -euo pipefail
command -v npm > /dev/null || apt-get install -y -q npm
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pysparkplug==0.6.1
npm install --silent --no-audit --no-fund sparkplug-payload@1.0.3 > /dev/null
cat > numbers.json <<'JSON'
[["Int8", -1], ["Int16", -1], ["Int32", -1], ["Int64", -1], ["UInt32", 7], ["UInt64", 7]]
JSON
cat > by_python.py <<'PYTHON'
import json
import pathlib
import sys

from pysparkplug import DataType, Metric, NBirth

if sys.argv[1] == "write":
    for name, value in json.loads(pathlib.Path("numbers.json").read_text()):
        metric = Metric(timestamp=1, name=name, datatype=DataType[name.upper()], value=value)
        pathlib.Path(f"{name}.python").write_bytes(NBirth(timestamp=1, seq=0, metrics=(metric,)).encode())
else:
    read = {}
    for name, _ in json.loads(pathlib.Path("numbers.json").read_text()):
        try:
            read[name] = NBirth.decode(pathlib.Path(f"{name}.{sys.argv[1]}").read_bytes()).metrics[0].value
        except OverflowError as error:
            read[name] = type(error).__name__
    print(json.dumps(read))
PYTHON
cat > by_node.js <<'JS'
const fs = require('fs');
const sparkplug = require('sparkplug-payload').get('spBv1.0');
const numbers = JSON.parse(fs.readFileSync('numbers.json'));
if (process.argv[2] === 'write') {
  for (const [type, value] of numbers) {
    const payload = {timestamp: 1, seq: 0, metrics: [{name: type, type, value, timestamp: 1}]};
    fs.writeFileSync(type + '.node', Buffer.from(sparkplug.encodePayload(payload)));
  }
} else {
  const read = {};
  for (const [type] of numbers) {
    const value = sparkplug.decodePayload(fs.readFileSync([type, process.argv[2]].join('.'))).metrics[0].value;
    read[type] = value === null || value === undefined ? null : Number(value);
  }
  console.log(JSON.stringify(read));
}
JS
venv/bin/python by_python.py write
node by_node.js write
echo "pysparkplug 0.6.1, sparkplug-payload 1.0.3"
for writer in python node; do
    venv/bin/python by_python.py "$writer" | tee "read-$writer-python"
    node by_node.js "$writer" | tee "read-$writer-node"
done
venv/bin/python - <<'PYTHON'
import json
import pathlib

read = {name: json.loads(pathlib.Path(f"read-{name}").read_text()) for name in
        ("python-python", "python-node", "node-python", "node-node")}
written = dict(json.loads(pathlib.Path("numbers.json").read_text()))
assert read["python-python"] == read["node-node"] == written
assert read["python-node"] == written | {"Int8": 255, "Int16": 65535, "UInt32": None}
assert read["node-python"] == written | {"Int8": "OverflowError", "Int16": "OverflowError"}
PYTHON
# Seen: Node.js reads Python's {Int8: 255, Int16: 65535, Int32: -1, Int64: -1, UInt32: null, UInt64: 7}
