"""The pure state machine of federated rounds. No socket, clock, thread or torch."""
