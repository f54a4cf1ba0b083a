// All events of all messages, live.

import { h } from "./dom.js";
import { DATA, KEY, MESSAGE, TIME, TOPIC, WHAT, WHERE } from "./event_table.js";
import { tail } from "./tail.js";

export async function messages(ctx) {
  if (!ctx.status().broker.history) return { title: "Messages", element: noHistory() };
  const all = await tail(ctx, {}, "Events of messages, the newest first", [TIME, WHAT, MESSAGE, TOPIC, WHERE, KEY, DATA],
    "Nothing has happened yet. New events appear here.");
  return { title: "Messages", element: all.element, events: all.events, onEvents: all.onEvents };
}

export function noHistory() {
  return h("p", { class: "empty" }, "This broker keeps no history. Start it without --history 0.");
}
