/** A dialog for an action: what it does, its fields, the command that does the same, and the result. */

import { el, field, mark, write } from "../dom.js";
import { post } from "./api.js";
import { commandText } from "./command.js";

const ROLES = ["viewer", "operator", "admin"];

/** A button that opens the dialog of an action; null where the visitor may not do it. */
export function actionButton(session, name, given, { done, title = null, values = {}, subject = "" } = {}) {
  const action = session.action(name);
  if (!action) return null;
  const text = title ?? action.title;
  const click = () => new ActionDialog(session, action, given, { done, values, subject }).open();
  const label = subject ? `${text}: ${subject}` : null;
  return el("button", { type: "button", class: action.grave ? "grave" : null, "aria-label": label, "data-action": name, text, on: { click } });
}

/** The dialog; it is removed when it closes, and the focus returns to the button. */
class ActionDialog {
  constructor(session, action, given, { done, values, subject }) {
    Object.assign(this, { _action: action, _given: given, _done: done, _session: session });
    this._inputs = new Map(action.fields.filter(({ kind }) => kind !== "given").map((wanted) => [wanted.name, inputOf(wanted, values)]));
    this._command = el("code");
    this._problem = el("p", { class: "problem", role: "alert" });
    this._submit = el("button", { type: "submit", class: action.grave ? "main grave" : "main", text: action.title });
    this._fields = el("div", { class: "form" }, action.fields.filter(({ kind }) => kind !== "given").map((wanted) => this._field(wanted)));
    const close = () => this._dialog.close();
    this._form = el("form", { class: "form", on: { submit: (event) => this._perform(event), input: () => this._say() } },
      el("h2", { id: "dialog-title", text: subject ? `${action.title}: ${subject}` : action.title }), el("p", { text: action.about }), this._fields,
      this._commandBox(), this._problem, el("div", { class: "end" }, el("button", { type: "button", text: "Cancel", on: { click: close } }), this._submit));
    this._dialog = el("dialog", { "aria-labelledby": "dialog-title", on: { close: () => this._dialog.remove() } }, this._form);
  }

  /** Show the dialog. */
  open() {
    document.body.append(this._dialog);
    this._say();
    this._dialog.showModal();
  }

  _field(wanted) {
    const input = this._inputs.get(wanted.name);
    if (!wanted.hint) return field(wanted.label, input);
    const hint = el("p", { class: "note", id: `hint-${wanted.name}`, text: wanted.hint });
    input.setAttribute("aria-describedby", hint.id);
    return field(wanted.label, input, hint);
  }

  _commandBox() {
    const button = el("button", { type: "button", class: "quiet", text: "Copy", on: { click: () => copy(this._command, button) } });
    return el("div", { class: "command" }, el("p", { class: "note", text: "The same on the command line:" }), this._command, button);
  }

  _args() {
    const typed = [...this._inputs].map(([name, input]) => [name, input.type === "password" ? input.value : input.value.trim()]);
    return { ...this._given, ...Object.fromEntries(typed) };
  }

  _say() {
    write(this._command, commandText(this._action.words, { user: this._session.name, ...this._args() }));
  }

  async _perform(event) {
    event.preventDefault();
    write(this._problem, "");
    mark(this._submit, "disabled", true);
    try {
      const result = await post(`api/actions/${this._action.name}`, this._args());
      if (result.secret) this._showSecret(result);
      else this._dialog.close();
      this._done?.(result);
    } catch (error) {
      write(this._problem, error.message);
    } finally {
      mark(this._submit, "disabled", null);
    }
  }

  _showSecret({ secret, said }) {
    const text = el("p", { class: "secret", text: secret, tabindex: 0, "aria-label": "The token" });
    const button = el("button", { type: "button", text: "Copy", on: { click: () => copy(text, button) } });
    const close = el("button", { type: "button", class: "main", text: "Close", on: { click: () => this._dialog.close() } });
    this._form.replaceChildren(el("h2", { id: "dialog-title", text: this._action.title }), el("p", { text: said }), text, el("div", { class: "end" }, button, close));
    close.focus();
  }
}

function inputOf({ name, kind, optional }, values) {
  const value = values[name] ?? "";
  if (kind === "role") {
    const select = el("select", { name }, ROLES.map((role) => el("option", { value: role, text: role })));
    select.value = value || ROLES[0];
    return select;
  }
  const input = el("input", { name, type: kind === "secret" ? "password" : "text", required: !optional, spellcheck: "false", autocapitalize: "off",
    autocomplete: kind !== "secret" ? "off" : name === "old_password" ? "current-password" : "new-password" });
  input.value = value;
  return input;
}

/** Copy an element's text; where the browser does not allow it, select the text. */
async function copy(element, button) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    write(button, "Copied");
  } catch {
    getSelection().selectAllChildren(element);
    write(button, "Selected");
  }
}
