// What onnxruntime's package for Node or for browsers answers for a file's bytes and inputs [32, ...] of that
// shape: for 1 and for 32 examples each output, in the file's order.
export async function answersOf(runtime, model, inputs, shape) {
  const session = await runtime.InferenceSession.create(model);
  const answers = [];
  for (const batch of [1, 32]) {
    const part = inputs.slice(0, (inputs.length / shape[0]) * batch);
    const answer = await session.run({ input: new runtime.Tensor("float32", part, [batch, ...shape.slice(1)]) });
    const outputs = session.outputNames.map((name) => answer[name]);
    answers.push(outputs.map(({ dims, data }) => ({ dims, data: Array.from(data, Number) })));
  }
  return answers;
}
