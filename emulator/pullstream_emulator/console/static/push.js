// The answers of push endpoints.

import { h } from "./dom.js";
import { DATA, MESSAGE, TIME, TOPIC } from "./event_table.js";
import { subscriptionCell } from "./links.js";
import { noHistory } from "./messages.js";
import { tail } from "./tail.js";

const isGood = (answer) => /^(102|200|201|202|204)\b/.test(answer);

export async function push(ctx) {
  const title = "Push log";
  if (!ctx.status().broker.history) return { title, element: noHistory() };
  const endpoints = new Map(ctx.status().subscriptions.map((each) => [each.name, each.pushEndpoint]));
  const log = await tail(ctx, { kind: "push" }, "Answers, the newest first", [
    TIME, MESSAGE, TOPIC,
    { label: "Subscription", cell: (event) => subscriptionCell(event.resource) },
    { label: "Endpoint", class: "data", cell: (event) => endpoints.get(event.resource) || "" },
    { label: "Attempt", class: "number", cell: (event) => event.attempt },
    { label: "Answer", cell: (event) => ({ text: event.detail, tone: isGood(event.detail) ? "good" : "bad" }) },
    DATA,
  ], "The broker has pushed nothing yet. A subscription with a push endpoint appears here.");
  return { title, element: h("div", null, log.element), events: log.events, onEvents: log.onEvents };
}
