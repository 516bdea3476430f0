/** The page: a login, then one visible view. */

import { el, mark, write } from "../dom.js";
import { themeButton } from "../theme.js";
import { actionButton } from "./action_dialog.js";
import { post, read, useSession } from "./api.js";
import { AlertsView } from "./alerts_view.js";
import { AuditView } from "./audit_view.js";
import { DeviceView } from "./device_view.js";
import { DevicesView } from "./devices_view.js";
import { JobsView } from "./jobs_view.js";
import { JobView } from "./job_view.js";
import { loginView } from "./login_view.js";
import { RolloutsView } from "./rollouts_view.js";
import { parseRoute } from "./routes.js";
import { Session } from "./session.js";
import { tick } from "./times.js";
import { UsersView } from "./users_view.js";

const byId = (id) => document.getElementById(id);
const VIEWS = { devices: DevicesView, jobs: JobsView, rollouts: RolloutsView, alerts: AlertsView, audit: AuditView, users: UsersView };
const BADGE_EVERY_MS = 10000;
const TITLES = { devices: "Devices", jobs: "Jobs", rollouts: "Rollouts", alerts: "Alerts", audit: "Audit log", users: "Users" };
let views = new Map();
let shown = null;

/** Ask who is logged in, and show the login or the page. */
async function begin() {
  leave();
  try {
    const me = await read("api/me");
    useSession(me.change, begin);
    if (me.who === null) showLogin(me);
    else showPage(new Session(me, { banner: byId("banner"), spoken: byId("spoken"), changed: badge }));
  } catch (error) {
    byId("main").replaceChildren(el("div", { class: "empty" }, el("p", { class: "empty-title", text: "The server does not answer" }),
      el("p", { text: error.message }), el("button", { type: "button", text: "Try again", on: { click: begin } })));
  }
}

function showLogin(me) {
  for (const id of ["who", "logout", "password", "tabs"]) mark(byId(id), "hidden", true);
  byId("main").replaceChildren(loginView(me, begin));
  byId("main").querySelector("input")?.focus();
}

function showPage(session) {
  const tabs = Object.keys(VIEWS).filter((name) => session.reads(name));
  views = new Map(tabs.map((name) => [name, new VIEWS[name](session)]));
  views.set("device", new DeviceView(session));
  views.set("job", new JobView(session));
  byId("tabs").replaceChildren(...tabs.map((name) => el("a", { href: `#${name}`, "data-view": name, text: TITLES[name] })));
  byId("main").replaceChildren(...[...views.values()].map(({ element }) => element));
  write(byId("who"), `${session.name}, ${session.me.role}`);
  for (const id of ["who", "logout", "tabs"]) mark(byId(id), "hidden", null);
  const own = actionButton(session, "own.password", {}, { done: begin });
  if (own) {
    own.id = "password";
    own.className = "quiet";
    byId("password").replaceWith(own);
  }
  go();
  badge();
}

/** The number of alerts that fire, behind the word in the navigation. */
async function badge() {
  const tab = byId("tabs").querySelector('[data-view="alerts"]');
  if (!tab || document.hidden) return;
  try {
    const firing = (await read("api/alerts")).alerts.filter(({ state }) => state === "firing").length;
    tab.replaceChildren(TITLES.alerts, ...(firing ? [" ", el("span", { class: "badge", text: String(firing) }), el("span", { class: "unseen", text: " firing" })] : []));
  } catch {
    // The visible view says that the server does not answer.
  }
}

function go() {
  if (!views.size) return;
  const route = parseRoute(location.hash, [...views.keys()]);
  leave();
  for (const tab of byId("tabs").children) mark(tab, "aria-current", tab.dataset.view === route.tab ? "page" : null);
  for (const [name, view] of views) mark(view.element, "hidden", name !== route.view);
  const moved = shown !== null && shown !== route.view;
  shown = route.view;
  document.title = `${route.path.at(-1) ?? TITLES[route.tab]} · Edge fleet`;
  views.get(shown).go(route);
  if (moved) scrollTo(0, 0);
}

function leave() {
  views.get(shown)?.leave();
}

async function logOut() {
  try {
    await post("api/logout", {});
  } finally {
    views = new Map();
    shown = null;
    history.replaceState(null, "", location.pathname);
    begin();
  }
}

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
byId("logout").addEventListener("click", logOut);
themeButton(byId("theme"));
addEventListener("hashchange", go);
setInterval(() => tick(byId("main")), 1000);
setInterval(() => views.size && badge(), BADGE_EVERY_MS);
document.addEventListener("visibilitychange", () => views.size && badge());
begin();
