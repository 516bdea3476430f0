"""The scripts that bring an inventory to each next format."""

MIGRATIONS = (
    """
CREATE TABLE devices (
    federation TEXT NOT NULL, device TEXT NOT NULL, session INTEGER NOT NULL DEFAULT 0,
    own_labels TEXT NOT NULL DEFAULT '{}', stated_labels TEXT NOT NULL DEFAULT '{}',
    note TEXT NOT NULL DEFAULT '', site TEXT NOT NULL DEFAULT '', enrolled_at REAL, certificate_until REAL,
    revoked_at REAL, seen_at REAL, alive INTEGER NOT NULL DEFAULT 0, machine TEXT NOT NULL DEFAULT '',
    versions TEXT NOT NULL DEFAULT '{}', model TEXT NOT NULL DEFAULT '', disk_free_bytes INTEGER,
    board TEXT, drift TEXT, replaces TEXT NOT NULL DEFAULT '', removed_at REAL,
    PRIMARY KEY (federation, device)) WITHOUT ROWID
""",
    "ALTER TABLE devices ADD COLUMN skipped TEXT",
    """
CREATE TABLE board_states (
    federation TEXT NOT NULL, device TEXT NOT NULL, at REAL NOT NULL, celsius REAL, disk_free_bytes INTEGER,
    PRIMARY KEY (federation, device, at)) WITHOUT ROWID
""",
    "ALTER TABLE devices ADD COLUMN shown TEXT NOT NULL DEFAULT '{}'",
)
