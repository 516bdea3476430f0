/** The page: one store, one event stream, one visible view. */

import { Banner } from "./banner.js";
import { ChannelView } from "./channel_view.js";
import { DeviceView } from "./device_view.js";
import { el, mark, write } from "./dom.js";
import { Events } from "./events.js";
import { EventsView } from "./events_view.js";
import { FleetView } from "./fleet_view.js";
import { ModelView } from "./model_view.js";
import { parseRoute } from "./router.js";
import { RunView } from "./run_view.js";
import { lastRound, Store, withEnd, withFleet, withLink, withRound, withRun } from "./store.js";
import { Announcer } from "./announcer.js";
import { lightOnPaper, themeButton } from "./theme.js";

const byId = (id) => document.getElementById(id);
const seconds = () => Date.now() / 1000;
const views = {
  run: new RunView(), fleet: new FleetView(), device: new DeviceView(), model: new ModelView(), channel: new ChannelView(), events: new EventsView(),
};
const loading = el("div", { class: "loading", role: "status" }, el("p", { text: "Loading the run" }), ...[1, 2, 3].map(() => el("div", { class: "bone" })));
let shown = "run";
let drawing = false;

const store = new Store((state, before) => {
  announcer.announce(state, before);
  if (!drawing) requestAnimationFrame(draw);
  drawing = true;
});
const announcer = new Announcer(byId("spoken"));
const events = new Events({
  since: () => (store.state.run ? lastRound(store.state) : null),
  onLink: (link) => store.state.link.state === link.state && link.state === "live" || store.apply(withLink, link),
  onEvent: receive,
});
const banner = new Banner(byId("banner"), () => events.open());

function receive(kind, value) {
  if (kind === "fleet") store.apply(withFleet, value);
  else if (kind === "round") store.apply(withRound, value);
  else if (kind === "end") store.apply(withEnd, value);
  else receiveRun(value);
}

function receiveRun(run) {
  const another = store.state.run && store.state.run.run !== run.run && !run.history;
  store.apply(withRun, run, seconds());
  // Another run is served at this address now: connect again to get its earlier rounds.
  if (another) events.open();
}

function draw() {
  drawing = false;
  const { state } = store;
  mark(loading, "hidden", state.run !== null || state.link.state !== "loading");
  mark(views[shown].element, "hidden", state.run === null);
  head(state);
  banner.show(state);
  if (state.run) views[shown].show(state, seconds());
  views[shown].tick?.(state, seconds());
}

const LINKS = { loading: "Loading", live: "Live", lost: "Connection lost", ended: "Finished", failed: "No access" };

function head({ run, link, history }) {
  const over = link.state === "ended" || (run && !run.live);
  byId("link").dataset.state = over ? "ended" : link.state;
  write(byId("link-text"), over ? (run?.outcome ? `Run ${run.outcome}` : "Run folder") : LINKS[link.state]);
  if (!run) return;
  write(byId("federation"), run.federation);
  write(byId("run-id"), run.run);
  const closed = history.at(-1)?.round ?? 0;
  document.title = `${run.outcome ?? (run.rounds ? `${closed}/${run.rounds}` : `${closed}`)} · ${run.federation}`;
}

function go() {
  const route = parseRoute(location.hash);
  const moved = route.view !== shown;
  for (const tab of document.querySelectorAll("[data-view]")) mark(tab, "aria-current", tab.dataset.view === route.tab ? "page" : null);
  for (const [name, view] of Object.entries(views)) mark(view.element, "hidden", name !== route.view || !store.state.run);
  shown = route.view;
  views[shown].go?.(route);
  if (moved) scrollTo(0, 0);
  draw();
}

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
byId("main").append(loading, ...Object.values(views).map(({ element }) => element));
themeButton(byId("theme"));
lightOnPaper();
addEventListener("hashchange", go);
addEventListener("online", () => store.state.link.state === "lost" && events.open());
setInterval(() => {
  banner.tick(store.state);
  views[shown].tick?.(store.state, seconds());
}, 1000);
go();
events.open();
