"""The update firewall, on by default: the checks of an update, in this order.

    check                               module                          reasons
    envelope valid                      `schemas.messages`              malformed, oversized, unknown-kind
    sender is the device                `coordinator.server`            wrong-sender
    selected in this round              `rounds.device_messages`        not-selected, stale-round
    not counted yet                     `rounds.device_messages`        already-counted
    within its size bound               `rounds.participant`            oversized
    bytes match the digest              `update`                        digest-mismatch
    encoded as the task asks            `update`                        malformed, oversized, wrong-shape
    steps fit the task                  `consistency`                   out-of-bounds
    groups and shapes as asked          `contents`                      malformed, wrong-shape
    finite, within 1e6                  `contents`                      not-finite, out-of-bounds
    values possible for their group     `consistency`                   out-of-bounds
    not of an earlier round             `update_history`                replayed
    norm among the recent ones          `norms`                         out-of-bounds
    no variance below 0                 `consistency`                   out-of-bounds
    harmless by itself (if configured)  `canary`                        harmful
    like the others, at the close       `norms`                         out-of-bounds
    no worse model for it               `leave_one_out`                 harmful

An update beyond the bounds of `norms` is tried by the last check, where updates are compared on test data.

The device of a refused update is sent the reason code, the refusal is counted, and the round continues.
"""
