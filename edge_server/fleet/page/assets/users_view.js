/** Users and tokens, for admins. */

import { el } from "../dom.js";
import { durationText, momentText, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";
import { ago, until } from "./times.js";

/** The section. */
export class UsersView extends ListView {
  constructor(session) {
    const again = { done: ({ said, secret }) => (secret || session.say(said), this.load()) };
    const users = new Listing({ caption: "Users", id: ({ user }) => user, columns: [
      { head: "User", cell: ({ user }) => user },
      { head: "Role", cell: ({ role }) => role },
      { head: "Login", cell: ({ kind, locked_s: left }) => (left > 0 ? `locked for ${durationText(left)}` : kind === "oidc" ? "OpenID provider" : "password") },
      { head: "Since", cell: ({ made_at: at }) => momentText(at) },
      { head: "Change", cell: (row) => userButtons(session, row, again) },
    ] });
    const tokens = new Listing({ caption: "Tokens", id: ({ token }) => token, columns: [
      { head: "Token", cell: ({ token }) => token },
      { head: "Role", cell: ({ role }) => role },
      { head: "Devices", kind: "value-cell", cell: ({ where }) => where || "all" },
      { head: "Made by", cell: ({ made_by: who }) => who },
      { head: "Lasts", cell: ({ ends_at: at }) => until(at) },
      { head: "Used", cell: ({ used_at: at }) => ago(at) },
      { head: "Change", cell: (row) => el("div", { class: "acts" }, actionButton(session, "tokens.revoke", { token: row.token }, { ...again, subject: row.token })) },
    ] });
    const head = [actionButton(session, "users.add", {}, again)];
    const tokenHead = el("div", { class: "title" }, el("h3", { id: "tokens-title", text: "Tokens for programs" }), actionButton(session, "tokens.make", {}, again));
    const none = el("p", { class: "note", text: "There are no tokens." });
    const section = el("section", { "aria-labelledby": "tokens-title" }, tokenHead, tokens.element, none);
    super({ session, id: "users-title", title: "Users", none: ["No local users", "Users of the OpenID provider are listed after their first login."], head, more: [users.element] });
    this.element.append(section);
    Object.assign(this, { _users: users, _tokens: tokens, _noTokens: none });
  }

  path() {
    return "api/users";
  }

  answered({ users, tokens }) {
    this._users.show(users);
    this.empty(users.length === 0);
    this._tokens.show(tokens);
    this._noTokens.hidden = tokens.length > 0;
  }
}

function userButtons(session, { user, role, kind, locked_s: locked }, again) {
  if (user === session.name) return UNKNOWN;
  const more = { ...again, subject: user };
  const local = kind === "local";
  return el("div", { class: "acts" },
    local ? actionButton(session, "users.role", { user }, { ...more, values: { role } }) : null,
    local ? actionButton(session, "users.password", { user }, more) : null,
    locked > 0 ? actionButton(session, "users.unlock", { user }, more) : null,
    actionButton(session, "users.remove", { user }, more));
}
