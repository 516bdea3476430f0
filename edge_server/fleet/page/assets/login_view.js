/** The login: name and password, or the OpenID provider; without any user, how to make the first. */

import { el, field, mark, write } from "../dom.js";
import { post } from "./api.js";

/** The form; `entered()` is called after a login. */
export function loginView({ openid, setup }, entered) {
  if (setup) return firstUser(setup, entered);
  const user = el("input", { name: "user", autocomplete: "username", autocapitalize: "off", spellcheck: "false", required: true });
  const password = el("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = el("p", { class: "problem", role: "alert" });
  const button = el("button", { type: "submit", class: "main", text: "Log in" });
  const submit = async (event) => {
    event.preventDefault();
    write(problem, "");
    mark(button, "disabled", true);
    try {
      await post("api/login", { user: user.value.trim(), password: password.value });
      entered();
    } catch (error) {
      write(problem, error.status ? error.message : "The server does not answer.");
      password.value = "";
      password.focus();
    } finally {
      mark(button, "disabled", null);
    }
  };
  const provider = openid ? el("a", { class: "button", href: "login/openid", text: "Log in at the OpenID provider" }) : null;
  return el("section", { class: "view login", "aria-labelledby": "login-title" },
    el("form", { class: "card form", on: { submit } }, el("h2", { id: "login-title", text: "Log in" }), field("Name", user), field("Password", password), problem, button, provider));
}

function firstUser(setup, entered) {
  const again = el("button", { type: "button", class: "main", text: "I have done so", on: { click: entered } });
  return el("section", { class: "view login", "aria-labelledby": "login-title" },
    el("div", { class: "card form" }, el("h2", { id: "login-title", text: "Nobody can log in yet" }),
      el("p", { text: "Make the first admin on the machine of the service; until then this page is for that machine alone:" }), el("p", {}, el("code", { text: setup })), again));
}
