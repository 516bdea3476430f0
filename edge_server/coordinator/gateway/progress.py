"""What a gateway says of itself: a line for each connection, and one for each phase of a round."""

from collections.abc import Callable

from edge_server.coordinator.gateway.links import LinkAbove
from edge_server.rounds.gateway.state import Gateway
from schemas.counted import format_count
from schemas.messages import FederationEnd, RoundAnnouncement, SiteTerms

MB = 1_000_000


class Progress:
    """Lines for people: `show` prints one."""

    def __init__(self, site: str, above: LinkAbove, show: Callable[[str], None]) -> None:
        self._site, self._above, self._show = site, above, show
        self._last = ""

    def say(self, line: str) -> None:
        """A line, unless it was the last one."""
        if line != self._last:
            self._last = line
            self._show(line)

    def terms(self, terms: SiteTerms) -> None:
        within = [site for site in terms.sites if site.startswith(f"{self._site}.")]
        inside = f", with the sites {', '.join(within)}" if within else ""
        self.say(f"takes part in the run '{terms.run}'{inside}")

    def on_announcement(self, message: RoundAnnouncement | FederationEnd, gateway: Gateway) -> None:
        """The federation has entered another phase."""
        far = f"far link {self._above.received / MB:.1f} MB in, {self._above.sent / MB:.1f} MB out"
        if isinstance(message, FederationEnd):
            self.say(f"the run '{message.run}' is over: {message.outcome}; {far}")
            return
        devices = f"{format_count(len(gateway.births), 'device')} here"
        self.say(f"round {message.round} of {message.rounds}: {message.phase}; {devices}; {far}")
