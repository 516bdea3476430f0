/** Requests to the service: reading, changing, and what happens if nobody is logged in any more. */

/** A refused request, with the server's status and its reason. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let change = null;
let onStranger = () => {};

/** Use this session's change token; call `stranger` once a request finds that nobody is logged in. */
export function useSession(token, stranger) {
  change = token;
  onStranger = stranger;
}

/** Request JSON; throws Refused with the server's reason, or TypeError without a server. */
export const read = (path) => request(path, { headers: { Accept: "application/json" }, cache: "no-store" });

/** Send a change as JSON. */
export const post = (path, value) => request(path, {
  method: "POST", body: JSON.stringify(value), cache: "no-store",
  headers: { Accept: "application/json", "Content-Type": "application/json", ...(change ? { "X-Edge-Change": change } : {}) },
});

async function request(path, options) {
  const answer = await fetch(path, options);
  const text = await answer.text();
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // A proxy's error page is not JSON; its status suffices.
  }
  if (answer.ok) return value;
  if (answer.status === 401 && path !== "api/login") onStranger();
  throw new Refused(answer.status, value?.error ?? `the server answered ${answer.status}`);
}
