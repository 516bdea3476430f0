// What onnxruntime's package for Node or for browsers answers: the outputs of 1 and of 32 examples, one after
// the other, for a file's bytes and inputs [32, ...] of that shape.
export async function answersOf(runtime, model, inputs, shape) {
  const session = await runtime.InferenceSession.create(model);
  const outputs = [];
  for (const batch of [1, 32]) {
    const part = inputs.slice(0, (inputs.length / shape[0]) * batch);
    const answer = await session.run({ input: new runtime.Tensor("float32", part, [batch, ...shape.slice(1)]) });
    outputs.push(...answer.logits.data);
  }
  return new Float32Array(outputs);
}
