/** Light or dark: as the system says, or as the reader does; canvases ask here for colours. */

const NEXT = { system: "light", light: "dark", dark: "system" };
const listeners = new Set();
const dark = matchMedia("(prefers-color-scheme: dark)");

/** What is set: system, light or dark. */
export const theme = () => document.documentElement.dataset.theme ?? "system";

/** Call `heard` whenever colours have changed. */
export const onTheme = (heard) => listeners.add(heard);

/** The value of a colour token such as `--ink`, as a canvas understands it. */
export function colour(token) {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Have a button go through the three themes. */
export function themeButton(button) {
  const [word, name] = [document.createElement("span"), document.createElement("span")];
  [word.className, word.textContent] = ["wide", "Theme: "];
  button.replaceChildren(word, name);
  const say = () => (name.textContent = theme());
  button.addEventListener("click", () => {
    keep(NEXT[theme()]);
    say();
    tell();
  });
  dark.addEventListener("change", tell);
  say();
}

/** Paper is white: canvases are drawn in light while the page is printed. */
export function lightOnPaper() {
  let before = "system";
  addEventListener("beforeprint", () => {
    before = theme();
    apply("light");
    tell();
  });
  addEventListener("afterprint", () => {
    apply(before);
    tell();
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
    // Then it lasts as long as the page.
  }
}

function tell() {
  for (const heard of listeners) heard();
}
