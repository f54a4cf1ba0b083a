// The frame of the console: navigation, search, project, connection. Each screen is a module.

import { CallError, get, hasToken, query, setToken, stream } from "./api.js";
import { channels } from "./channels.js";
import { deadLetters } from "./dead_letters.js";
import { fill, h, setText } from "./dom.js";
import { faults } from "./faults.js";
import { feeds } from "./feeds.js";
import { withChanges } from "./live_status.js";
import { map } from "./map.js";
import { message } from "./message.js";
import { messages } from "./messages.js";
import { push } from "./push.js";
import { rates } from "./rates.js";
import { schema, schemas } from "./schemas.js";
import { search } from "./search.js";
import { subscription } from "./subscription.js";
import { topic } from "./topic.js";
import { confirmToken, notify } from "./dialogs.js";

const SCREENS = [
  { path: "map", label: "Map", open: map },
  { path: "messages", label: "Messages", open: messages },
  { path: "dead-letters", label: "Dead letters", open: deadLetters },
  { path: "push", label: "Push log", open: push },
  { path: "schemas", label: "Schemas", open: schemas },
  { path: "feeds", label: "Feeds", open: feeds },
  { path: "channels", label: "Channels", open: channels },
  { path: "faults", label: "Faults and clock", open: faults },
];

// Screens of one resource: the collection, then project and name, then the rest of the path.
const RESOURCES = {
  topics: (ctx, project, name) => topic(ctx, `projects/${project}/topics/${name}`),
  subscriptions: (ctx, project, name) => subscription(ctx, `projects/${project}/subscriptions/${name}`),
  schemas: (ctx, project, name) => schema(ctx, `projects/${project}/schemas/${name}`),
  messages: (ctx, project, name, id) => message(ctx, `projects/${project}/topics/${name}`, id),
};

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const picker = document.getElementById("project");
const searchBox = document.getElementById("search");
const connection = document.getElementById("connection");

let status = null;
let current = null;
let started = null;

/** A part of an address; one that is not encoded correctly stays as it is, and names nothing. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function route() {
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  return { parts, parameters: new URLSearchParams(parameters || "") };
}

/** The fragment of a screen in the chosen project. */
function screenLink(path) {
  return `#/${path}${query({ project: picker.value })}`;
}

function openScreen(ctx, parts) {
  const [first, ...rest] = parts;
  if (first === "search") return search(ctx);
  if (RESOURCES[first] && rest.length >= 2) return RESOURCES[first](ctx, ...rest);
  const screen = SCREENS.find((each) => each.path === (first || "map"));
  if (screen) return screen.open(ctx);
  throw new CallError(404, `The console has no screen ${location.hash}.`);
}

async function show() {
  current?.abort.abort();
  const { parts, parameters } = route();
  if (!["topics", "subscriptions", "messages"].includes(parts[0]) || parts.length < 3) {
    picker.value = parameters.get("project") || "";
    if (picker.value !== (parameters.get("project") || "")) {
      picker.append(h("option", { value: parameters.get("project") }, parameters.get("project")));
      picker.value = parameters.get("project");
    }
  }
  const mine = (current = {
    abort: new AbortController(),
    screen: null,
    newest: null,
  });
  drawNav(parts);
  const ctx = {
    project: picker.value,
    parameters,
    signal: mine.abort.signal,
    status: () => status,
    rates,
    reload: () => mine === current && show(),
    listen: () => mine === current && listen(mine),
    setParameter(name, value) {
      const { parts: now, parameters: all } = route();
      if (value) all.set(name, value);
      else all.delete(name);
      const text = all.toString();
      history.replaceState(null, "", `#/${now.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`);
    },
  };
  try {
    await readStatus();
    const screen = await openScreen(ctx, parts);
    if (mine !== current) return;
    mine.screen = screen;
    document.title = `${screen.title} – pullstream`;
    fill(main, h("h1", { tabindex: "-1" }, screen.title), screen.element);
    screen.onStatus?.(status);
    main.firstChild.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  } catch (error) {
    if (mine !== current) return;
    if (error.status === 401) return askToken();
    document.title = "Error – pullstream";
    fill(
      main,
      h("h1", null, error.status === 404 ? "Not found" : "The screen cannot be shown"),
      h("p", { class: "error" }, error.message),
      h("p", null, h("a", { href: screenLink("map") }, "Back to the map")),
    );
    if (!(error instanceof CallError)) console.error(error);
  }
  listen(mine);
}

async function readStatus() {
  takeStatus(await get(`v0/status${query({ project: picker.value })}`));
}

function takeStatus(newer) {
  status = newer;
  rates.add(newer);
  drawProjects();
}

/** Follow the broker live, with the events that the screen wants. */
function listen(mine) {
  mine.stream?.abort();
  const control = (mine.stream = new AbortController());
  mine.abort.signal.addEventListener("abort", () => control.abort());
  const events = mine.screen?.events;
  const path = () => {
    const wanted = events ? { ...events(), show: "events,status" } : { show: "status" };
    return `v0/live${query({ project: picker.value, ...wanted, after: mine.newest })}`;
  };
  stream(path, control.signal, (name, content) => {
    if (mine !== current) return;
    if (name === "status") {
      if (started !== null && started !== content.broker.started) {
        // The broker was started again: its events have other numbers.
        started = content.broker.started;
        mine.newest = 0;
        notify("The broker was started again.");
        return show();
      }
      started = content.broker.started;
      takeStatus(content);
      mine.screen?.onStatus?.(status);
    } else if (name === "changes") {
      takeStatus(withChanges(status, content));
      mine.screen?.onStatus?.(status);
    } else if (name === "events") {
      mine.newest = content.newest;
      mine.screen?.onEvents?.(content);
    }
  }, showConnection);
}

function showConnection(state) {
  if (state === "live") {
    setText(connection, "live");
    connection.dataset.state = "live";
    return;
  }
  if (state.status === 401) return askToken();
  setText(connection, "not connected");
  connection.title = state.message;
  connection.dataset.state = "lost";
}

async function askToken() {
  current?.abort.abort();
  const token = await confirmToken(hasToken() ? "The broker refused this token." : "");
  if (token === null) return;
  setToken(token);
  show();
}

// ---- frame -------------------------------------------------------------------------------------

function drawNav(parts) {
  const first = parts[0] || "map";
  fill(
    nav,
    SCREENS.map(({ path, label }) => h("a", { href: screenLink(path), "aria-current": first === path ? "page" : false }, label)),
  );
}

let projects = "";
function drawProjects() {
  // With a chosen project, the status has only this one.
  if (picker.value) return;
  const names = new Set([...status.topics, ...status.subscriptions, ...status.schemas].map((each) => each.name.split("/")[1]));
  const sorted = [...names].sort();
  if (sorted.join() === projects) return;
  projects = sorted.join();
  fill(picker, h("option", { value: "" }, "all"), sorted.map((name) => h("option", { value: name }, name)));
}

picker.addEventListener("change", () => {
  const chosen = picker.value;
  const { parts } = route();
  const isScreen = SCREENS.some((screen) => screen.path === parts[0]) && parts.length < 2;
  location.hash = `#/${isScreen ? parts[0] : "map"}${query({ project: chosen })}`;
});

document.getElementById("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = `#/search${query({ q: searchBox.value.trim(), project: picker.value })}`;
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    searchBox.focus();
    searchBox.select();
  }
});

const theme = document.getElementById("theme");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("pullstream-theme", name);
}
if (localStorage.getItem("pullstream-theme")) setTheme(localStorage.getItem("pullstream-theme"));
theme.addEventListener("click", () => {
  const present = document.documentElement.dataset.theme;
  const isDark = present ? present === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(isDark ? "light" : "dark");
});

window.addEventListener("hashchange", show);
show();
