/** The theme: light, dark, or as the system is set; and colours for canvases. */

const NEXT = { system: "light", light: "dark", dark: "system" };
const listeners = new Set();
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The chosen theme: system, light or dark. */
export const theme = () => document.documentElement.dataset.theme ?? "system";

/** Call `listener` whenever colours have changed. */
export const onTheme = (listener) => listeners.add(listener);

/** The value of a colour token such as `--ink`, as a canvas understands it. */
export function colour(token) {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Make a button cycle through the three themes. */
export function themeButton(button) {
  const [word, name] = [document.createElement("span"), document.createElement("span")];
  [word.className, word.textContent] = ["wide", "Theme: "];
  button.replaceChildren(word, name);
  const say = () => (name.textContent = theme());
  button.addEventListener("click", () => {
    keep(NEXT[theme()]);
    say();
    notify();
  });
  dark.addEventListener("change", notify);
  say();
}

/** Draw canvases in light while the page is printed. */
export function lightOnPaper() {
  let before = "system";
  addEventListener("beforeprint", () => {
    before = theme();
    apply("light");
    notify();
  });
  addEventListener("afterprint", () => {
    apply(before);
    notify();
  });
}

function apply(name) {
  const { dataset } = document.documentElement;
  if (name === "system") delete dataset.theme;
  else dataset.theme = name;
}

function keep(name) {
  apply(name);
  try {
    if (name === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", name);
  } catch {
    // Without local storage the choice lasts as long as the page.
  }
}

function notify() {
  for (const listener of listeners) listener();
}
