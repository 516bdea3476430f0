"""The devices of each job, as the inventory has them."""

from collections.abc import Iterable

from edge_server.fleet.queue.events import DevicesOfJob
from edge_server.fleet.queue.job import Job
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.records import InventoryDevice
from schemas.labels import parse_where


def devices_of_jobs(inventory: Inventory, jobs: Iterable[Job]) -> dict[str, DevicesOfJob]:
    """The devices that each job's selector chooses, and how many of them are online and not revoked."""
    jobs = list(jobs)
    known = {name: inventory.devices(federation=name) for name in {job.federation for job in jobs}}
    return {job.name: _chosen(job, known[job.federation]) for job in jobs}


def _chosen(job: Job, devices: Iterable[InventoryDevice]) -> DevicesOfJob:
    where = parse_where(job.where)
    chosen = [device for device in devices if device.revoked_at is None and where.matches(device.selectable)]
    return DevicesOfJob(frozenset(device.device for device in chosen), sum(device.alive for device in chosen))
