// Calls of the broker. All of them are documented: docs/console.md.

const TOKEN = "pullstream-token";
// The console is at /console/ of the broker, or below a proxy's prefix.
const BASE = new URL("..", document.baseURI);

export const isReadOnly = document.documentElement.dataset.mode === "read-only";
export const origin = BASE.href.replace(/\/$/, "");

export class CallError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

/** Use a token for all calls, until the tab is closed. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

function request(method, path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return fetch(new URL(path, BASE), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    credentials: "omit",
    cache: "no-store",
  });
}

/** Call the broker; return its JSON. Raises CallError with the text of a refusal. */
export async function call(method, path, body) {
  let response;
  try {
    response = await request(method, path, body);
  } catch (error) {
    throw new CallError(0, `The broker does not answer: ${error.message}`);
  }
  const text = await response.text();
  if (!response.ok) throw new CallError(response.status, refusal(text) || response.statusText);
  return text.startsWith("{") ? JSON.parse(text) : {};
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

function refusal(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text.trim();
  }
}

/** The parameters of a query that have a value, as text with "?"; empty without any. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/**
 * Read a live stream until `signal` is aborted; connect again after each failure.
 *
 * @param path returns the path for each connection, because it names the newest known event.
 * @param onEvent called with the name and the content of each event.
 * @param onState called with "live", or with the CallError that ended a connection.
 */
export async function stream(path, signal, onEvent, onState) {
  while (!signal.aborted) {
    let failure = new CallError(0, "The broker has ended the stream.");
    try {
      const response = await request("GET", path(), undefined, signal);
      if (response.ok) {
        onState("live");
        await readEvents(response.body, onEvent);
      } else {
        failure = new CallError(response.status, refusal(await response.text()));
      }
    } catch (error) {
      failure = new CallError(0, error.message);
    }
    if (signal.aborted) return;
    onState(failure);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function readEvents(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field("data")) onEvent(field("event"), JSON.parse(field("data")));
    }
  }
}
