"""Names in a step graph, which computes the loss and the gradients of one batch.

Inputs are the network's parameters and floating-point buffers under their own names, the examples `inputs`
[B, C, H, W] and `labels`, the loss's targets [B] or [B, L], and what an objective adds. Outputs
are the mean loss of the batch, the gradient of every parameter, the new value of every buffer that a step
changes, and observations of objectives.
"""

INPUTS, LABELS, LOSS = "inputs", "labels", "loss"
GRADIENT = "gradient/"
"""Prefix of the gradient of a parameter."""
NEXT = "next/"
"""Prefix of the new value of a buffer."""
OBSERVED = "observed/"
"""Prefix of an objective's observation of the batch, a sum over its examples."""
ATTENTION = "attention/"
"""Prefix of the parameters of an attention module, followed by its layer's name."""
KNOWN = "known-classes"
"""Boolean [classes]: the classes of the device's examples, for the masked loss."""
RECEIVED = "received/"
"""Prefix of the tensors of the received network, whose answers the trained one is to keep."""
SMALLEST_BATCH = "smallest-batch"
"""Metadata: the number of examples that a step needs, 2 with batch normalisation."""
FIXED_BYTES, BYTES_PER_EXAMPLE = "fixed-bytes", "bytes-per-example"
"""Metadata: the estimated working memory of a run, without inputs and outputs."""
COUNT, SUM, SQUARES = "count/", "sum/", "squares/"
"""Prefixes of the statistics of a batch normalisation's inputs, followed by its name."""
DROPOUT = "dropout/"
"""Prefix of a mask [B, ...] by which a layer's inputs are multiplied: 0, or 1 / (1 - probability)."""
DROPOUTS = "dropouts"
"""Metadata: the probability of each mask by its name, as JSON."""
