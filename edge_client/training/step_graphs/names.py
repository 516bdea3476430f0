"""Names in a step graph, which computes the loss and the gradients of one batch.

Inputs are the network's parameters and floating-point buffers under their own names, the examples `inputs`
[B, C, H, W] and `labels`, the loss's targets [B] or [B, L], and what an objective adds. Outputs
are the mean loss of the batch, the gradient of every parameter, the new value of every buffer that a step
changes, and observations of objectives.
"""

INPUTS, LABELS, LOSS = "inputs", "labels", "loss"
BATCH = "batch"  # the free first axis of inputs
GRADIENT = "gradient/"  # prefix of the gradient of a parameter
NEXT = "next/"  # prefix of the new value of a buffer
OBSERVED = "observed/"  # prefix of an objective's observation of the batch, a sum over its examples
ATTENTION = "attention/"  # prefix of the parameters of an attention module, followed by its layer's name
KNOWN = "known-classes"  # boolean [classes]: the classes of the device's examples, for the masked loss
RECEIVED = "received/"  # prefix of the received network's tensors, whose answers the trained one is to keep
SMALLEST_BATCH = "smallest-batch"  # metadata: examples that a step needs, 2 with batch normalisation
FIXED_BYTES, BYTES_PER_EXAMPLE = "fixed-bytes", "bytes-per-example"  # metadata: of a run's working memory
COUNT, SUM, SQUARES = "count/", "sum/", "squares/"  # of a normalisation's inputs, before its name
DROPOUT = "dropout/"  # prefix of a mask [B, ...] of a layer's inputs: 0, or 1 / (1 - probability)
DROPOUTS = "dropouts"  # metadata: the probability of each mask by its name, as JSON
