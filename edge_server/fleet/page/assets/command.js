/** The command that does the same as a button: its words with arguments, quoted for a shell. */

const PLACEHOLDER = /\{([a-z_]+)(\.\.\.)?\}/g;
const WHOLE = /^\{([a-z_]+)(\.\.\.)?\}$/;
const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

/** Words with their arguments; an option whose argument is empty is left out with it. */
export function filledWords(words, args) {
  const filled = [];
  for (const word of words) {
    const whole = WHOLE.exec(word);
    if (whole?.[2]) filled.push(...(args[whole[1]] ?? "").split(/\s+/).filter(Boolean));
    else if (whole && !args[whole[1]] && filled.at(-1)?.startsWith("--")) filled.pop();
    else filled.push(word.replace(PLACEHOLDER, (_, name) => args[name] ?? ""));
  }
  return filled;
}

/** A word as a shell needs it. */
export const quoted = (word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

/** The command as typed in a shell. */
export const commandText = (words, args) => filledWords(words, args).map(quoted).join(" ");
