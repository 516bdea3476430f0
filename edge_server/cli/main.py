"""The command `edge-server`: one verb, one file under `commands`."""

import sys
from collections.abc import Sequence

from edge_client.cli.app import CommandLine
from edge_server.cli.commands import (
    check,
    client_release,
    compare,
    components,
    dashboard,
    demo,
    devices,
    enroll,
    evaluate,
    gateway,
    handover,
    init,
    models,
    object_store,
    recipes,
    replay,
    report,
    revoke,
    rollout,
    run,
    schemas,
    simulate,
    standby,
    statistics,
)
from edge_server.cli.commands.fleet import (
    alerts,
    audit,
    backup,
    diagnose,
    doctor,
    inventory,
    jobs,
    logs,
    profile,
    restore,
    serve,
    tokens,
    users,
)

EDGE_SERVER = CommandLine(
    prog="edge-server",
    extra="server",
    description="Federated learning for unlike devices over one MQTT broker.",
    examples="""\
examples:
  edge-server demo                                  the whole system on this machine
  edge-server init                                  five questions, and a federation file
  edge-server check federation.toml                 is the file right, and what does it mean
  edge-server run federation.toml --broker mqtt://host:1883
  edge-server enroll pi-kitchen --out boards        certificate and settings for a device
  edge-server simulate attending data.source=digits num-clients=100

exit codes: 0 done, 1 the run failed, 2 bad usage or configuration, 130 interrupted, 143 suspended
""",
    verbs=(
        demo,
        init,
        run,
        standby,
        handover,
        gateway,
        object_store,
        enroll,
        revoke,
        serve,
        alerts,
        jobs,
        users,
        tokens,
        audit,
        devices,
        doctor,
        logs,
        profile,
        diagnose,
        inventory,
        backup,
        restore,
        models,
        rollout,
        client_release,
        dashboard,
        simulate,
        evaluate,
        statistics,
        compare,
        check,
        recipes,
        components,
        report,
        replay,
        schemas,
    ),
    extras=dict.fromkeys(("argon2", "authlib", "cronsim", "joserfc"), "fleet"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    return EDGE_SERVER.run(argv)


if __name__ == "__main__":
    sys.exit(main())
