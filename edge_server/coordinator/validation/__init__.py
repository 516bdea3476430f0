"""The update firewall, on by default: what an update must be before it may count, in this order.

    envelope valid                 `schemas.messages`           malformed, oversized, unknown-kind, ...
    the sender is the device       `edge_server.coordinator.server`         wrong-sender
    selected in this round         `edge_server.rounds.device_messages`       not-selected, stale-round
    not yet counted                `edge_server.rounds.device_messages`       already-counted
    within its size bound          `edge_server.rounds.participant`    oversized
    the bytes of its digest        `edge_server.coordinator.validation.update`        digest-mismatch
    encoded as the task asks       `encoded`                    malformed, oversized, wrong-shape, ...
    its steps those of its task    `answers`                    out-of-bounds
    a blob of groups, its shapes   `contents`                   malformed, wrong-shape
    finite, below any sense        `contents`                   not-finite, out-of-bounds
    what devices can measure       `answers`                    out-of-bounds
    not of an earlier round        `replays`                    replayed
    norm among the recent ones     `norms`                      out-of-bounds
    no variance below 0            `answers`                    out-of-bounds
    harmless by itself             `canary` (where configured)  harmful
    like the others of its round   `norms`, when it closes      out-of-bounds

Whatever it is not has a reason code, which its device is told and which is counted; the round goes on.
"""
