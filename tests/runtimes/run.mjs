// One package's answers for a folder of files: `node run.mjs PACKAGE FOLDER`.
// Beside each NAME.onnx is NAME.f32 with 32 examples and NAME.shape.json with their shape; the answers are
// written to NAME.PACKAGE.json.
import { createRequire } from "node:module";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { answersOf } from "./answers.mjs";

const [name, folder] = process.argv.slice(2);
const runtime = createRequire(join(process.cwd(), "package.json"))(name);
const floats = (bytes) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
for (const file of readdirSync(folder).filter((each) => each.endsWith(".onnx")).sort()) {
  const stem = join(folder, file.slice(0, -5));
  const shape = JSON.parse(readFileSync(`${stem}.shape.json`, "utf8"));
  const answers = await answersOf(runtime, readFileSync(`${stem}.onnx`), floats(readFileSync(`${stem}.f32`)), shape);
  writeFileSync(`${stem}.${name}.json`, JSON.stringify(answers));
  console.log(file);
}
process.exit(0);
