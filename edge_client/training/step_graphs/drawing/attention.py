"""The backward pass of `scaled_dot_product_attention`, which torch computes in one kernel, as products."""

import torch
from torch import Tensor


def attended_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    outputs: Tensor,
    logarithms: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, all [B, heads, T, d], from that of the outputs.

    Torch has this kernel without dropout alone. A mask is what is added to the scores.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, device=scores.device).triu(1)
    if attn_mask is not None:
        scores = scores + attn_mask
    shares = torch.softmax(scores, -1)
    of_shares = torch.matmul(gradient, value.transpose(-2, -1))
    of_scores = shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True)) * factor
    return (
        torch.matmul(of_scores, key),
        torch.matmul(of_scores.transpose(-2, -1), query),
        torch.matmul(shares.transpose(-2, -1), gradient),
    )
