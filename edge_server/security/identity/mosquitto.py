"""Mosquitto's configuration and access rules for one federation, 2.0.11 to 2.1."""

from pathlib import Path

from edge_server.config.object_store import identifier
from edge_server.security.identity.settings import AuthoritySettings
from schemas.topics import ROOT, enrolment_root

SERVER, SERVICE, ROLLOUT = "edge-server", "edge-authority", "edge-rollout"
"""The certificate names (CN) of `edge-server run`, of `enroll --serve` and of `rollout`."""
FLEET, OPERATOR, UPDATES = "edge-fleet", "edge-operator", "edge-updates"
"""Those of `edge-server serve`, of an operator's commands to devices, and of rollouts of the client."""
LEASE, STANDBY = "edge-lease", "edge-standby"
"""Those of the connections that keep the lease: of a server, and of its standby on another machine."""
HOME, SPARKPLUG = "edge-home", "edge-sparkplug"  # Those of the Home Assistant and Sparkplug integrations
HOME_ASSISTANT, SCADA = "home-assistant", "scada-host"  # Those of Home Assistant itself and of a SCADA host
SERVICE_IDENTITIES = {
    "server": SERVER,
    "lease": LEASE,
    "standby": STANDBY,
    "service": SERVICE,
    "rollout": ROLLOUT,
    "fleet": FLEET,
    "operator": OPERATOR,
    "updates": UPDATES,
    "home": HOME,
    "sparkplug": SPARKPLUG,
    "home-assistant": HOME_ASSISTANT,
    "scada-host": SCADA,
}  # The certificate name in each of the authority's folders
CONF, ACL, REVOKED, ENROLMENT_CA = "mosquitto.conf", "acl", "revoked.crl", "door-ca.pem"

_CONF = """\
# Written by `edge-server enroll`, which overwrites it: keep your own settings in another file.
# Mosquitto 2.0.11 to 2.1: mosquitto -c {folder}/mosquitto.conf
# as the user who owns the authority: started as root it becomes user mosquitto, who may not read this folder
# (`edge-server enroll DEVICE --broker-folder DIR` is for files that you copy to a folder that it may read).

# --- devices and the server ---------------------------------------------------------------------------------
listener {port}
cafile {folder}/ca.pem
certfile {folder}/broker.pem
keyfile {folder}/broker.key
# SIGHUP reloads the list; open connections stay open (`edge-server revoke` ends them).
crlfile {folder}/revoked.crl
require_certificate true
# The certificate's CN is the user name, which the access rules know as %u ...
use_identity_as_username true
# ... and the client identifier, or any device could disconnect another one by using its identifier.
use_username_as_clientid true
# A minimum: 1.3 is used if both sides support it.
tls_version tlsv1.2

# --- the enrolment listener: close its port in the firewall while you issue no codes ------------------------
# It accepts only the short-lived certificate of an enrolment code, which no other listener accepts.
listener {enrolment_port}
cafile {folder}/door-ca.pem
certfile {folder}/broker.pem
keyfile {folder}/broker.key
require_certificate true
use_identity_as_username true
use_username_as_clientid true
tls_version tlsv1.2
# Clients of this listener see only topics below this one, whatever the access rules say.
mount_point {mount_point}
max_connections 64

# --- all listeners ------------------------------------------------------------------------------------------
allow_anonymous false
acl_file {folder}/acl
# Models travel in chunks of 256 kB. 2.0 has no limit and 2.1 has 2,000,000 bytes: set the same for both.
max_packet_size 1048576
max_inflight_messages 20
max_queued_messages 10000
max_queued_bytes 67108864
set_tcp_nodelay true
persistent_client_expiration 7d
# To survive a restart: the user who runs Mosquitto must be able to write into the folder.
#persistence true
#persistence_location /var/lib/mosquitto/
#autosave_interval 30
log_dest stderr
log_type error
log_type warning
log_type notice
"""

_ACL = """\
# Written by `edge-server enroll`. A user is a certificate's name (CN), %u the client's own.
# Mosquitto grants every subscription; messages that these rules do not allow are never delivered.

user {server}
topic read {root}/devices/+/up/#
topic write {root}/devices/+/down/#
topic read {root}/sites/+/up/#
topic write {root}/sites/+/down/#
topic readwrite {root}/all/#
topic write {root}/layers/#
topic readwrite {root}/server/echo
topic readwrite {root}/server/lease
topic readwrite {root}/server/standby/#
topic write {root}/devices/+/predict/request
topic read {root}/devices/+/predict/answer

# Which server holds the federation; the standby has one connection more.
user {lease}
topic readwrite {root}/server/lease
topic readwrite {root}/server/standby/#

user {standby}
topic readwrite {root}/server/lease
topic readwrite {root}/server/standby/#

user {rollout}
topic read {root}/devices/+/up/birth
topic read {root}/devices/+/up/rollout
topic write {root}/devices/+/down/rollout
topic write {root}/devices/+/down/blob
topic readwrite {root}/rollout/echo

# The fleet service follows devices; it and an operator's commands ask them, and update their client.
user {fleet}
topic read {root}/devices/+/up/birth
topic read {root}/devices/+/up/control
topic read {root}/devices/+/up/fleet
topic read {root}/sites/+/up/devices/+/birth
topic read {root}/sites/+/up/devices/+/control
topic read {root}/sites/+/up/devices/+/fleet
topic write {root}/devices/+/down/fleet
topic write {root}/sites/+/down/devices/+/fleet
topic write {root}/devices/+/down/blob
topic write {root}/home/devices/+/alerts/#
topic write homeassistant/device/{node}/#
topic readwrite {root}/fleet/echo

user {operator}
topic read {root}/devices/+/up/birth
topic read {root}/devices/+/up/fleet
topic read {root}/sites/+/up/devices/+/birth
topic read {root}/sites/+/up/devices/+/fleet
topic write {root}/devices/+/down/fleet
topic write {root}/sites/+/down/devices/+/fleet
topic write {root}/devices/+/down/blob
topic write {root}/home/devices/+/alerts/#
topic write homeassistant/device/{node}/#
topic readwrite {root}/operator/echo

user {updates}
topic read {root}/devices/+/up/birth
topic read {root}/devices/+/up/fleet
topic write {root}/devices/+/down/fleet
topic write {root}/devices/+/down/blob
topic readwrite {root}/updates/echo

user {service}
topic read {enrol}+/request
topic write {enrol}+/answer

# The Home Assistant integration: of Home Assistant it reads only the install button.
user {home}
topic read {root}/devices/+/up/birth
topic write {root}/home/#
topic read {root}/home/devices/+/install
topic readwrite homeassistant/device/{node}/#

# Home Assistant itself; it sees no other devices on this broker.
user {home_assistant}
topic read homeassistant/device/{node}/#
topic readwrite homeassistant/status
topic read {root}/home/#
topic write {root}/home/devices/+/install

# The federation as an edge node of Sparkplug, and a SCADA host.
user {sparkplug}
topic write spBv1.0/+/+/{federation}/#
topic read spBv1.0/+/NCMD/{federation}

user {scada_host}
topic read spBv1.0/#
topic write spBv1.0/+/NCMD/+
topic write spBv1.0/STATE/+

# A device: its own topics, and those of all devices. Two rules have no %u, of which Mosquitto warns.
pattern write {root}/devices/%u/up/#
pattern read {root}/devices/%u/down/#
# Its birth shows a device whether another one uses its name.
pattern read {root}/devices/%u/up/birth
pattern readwrite {root}/devices/%u/echo
pattern read {root}/all/#
pattern read {root}/layers/#
# `edge-client serve` with its own certificate.
pattern read {root}/devices/%u/predict/request
pattern write {root}/devices/%u/predict/answer
# The gateway of a site, whose certificate is named after the site: its own topics, and those of all devices.
pattern write {root}/sites/%u/up/#
pattern read {root}/sites/%u/down/#
# Its next certificate; for an enrolment code, %u is the code's id.
pattern write {enrol}%u/request
pattern read {enrol}%u/answer
"""


def mosquitto_files(settings: AuthoritySettings, folder: Path) -> dict[str, str]:
    """The broker's files by name, for a broker that reads them in `folder`."""
    enrol = enrolment_root(settings.federation)
    conf = _CONF.format(
        folder=folder, port=settings.port, enrolment_port=settings.enrolment_port, mount_point=enrol
    )
    names = {role.replace("-", "_"): name for role, name in SERVICE_IDENTITIES.items()}
    names |= {"federation": settings.federation, "node": identifier(settings.federation)}
    acl = _ACL.format(**names, root=f"{ROOT}/{settings.federation}", enrol=enrol)
    return {CONF: conf, ACL: acl}
