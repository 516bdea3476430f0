// One package's answers for a folder of files: `node run.mjs PACKAGE FOLDER`.
// Beside each NAME.onnx is NAME.f32 with 32 examples and NAME.shape.json with their shape; outputs of 1 and 32
// examples are written to NAME.PACKAGE.f32, one after the other.
import { createRequire } from "node:module";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [name, folder] = process.argv.slice(2);
const runtime = createRequire(join(process.cwd(), "package.json"))(name);
const floats = (bytes) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
for (const file of readdirSync(folder).filter((each) => each.endsWith(".onnx")).sort()) {
  const stem = join(folder, file.slice(0, -5));
  const shape = JSON.parse(readFileSync(`${stem}.shape.json`, "utf8"));
  const inputs = floats(readFileSync(`${stem}.f32`));
  const session = await runtime.InferenceSession.create(readFileSync(`${stem}.onnx`));
  const outputs = [];
  for (const batch of [1, 32]) {
    const part = inputs.slice(0, (inputs.length / shape[0]) * batch);
    const answer = await session.run({ input: new runtime.Tensor("float32", part, [batch, ...shape.slice(1)]) });
    outputs.push(...answer.logits.data);
  }
  writeFileSync(`${stem}.${name}.f32`, Buffer.from(new Float32Array(outputs).buffer));
  console.log(file);
}
process.exit(0);
