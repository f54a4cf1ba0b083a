// Dead letters with the reason of their last failure: resend one, edit it, or resend all.

import { get, post, query } from "./api.js";
import { count, h, setText } from "./dom.js";
import { action, confirm, notify } from "./dialogs.js";
import { DATA, describe, EventTable, MESSAGE, TIME, TOPIC } from "./event_table.js";
import { subscriptionCell, topicCell, topicLink } from "./links.js";
import { noHistory } from "./messages.js";

const KINDS = "nack,expiry,push,dead-letter";

export async function deadLetters(ctx) {
  const title = "Dead letters";
  if (!ctx.status().broker.history) return { title, element: noHistory() };
  const reasons = new Map();
  const summary = h("p", { class: "totals" });

  const resend = async (event) => {
    const { message } = await get(`v0/messages/${event.messageId}?topic=${encodeURIComponent(event.topic)}`);
    const { data, attributes, orderingKey } = message;
    await post(`v1/${event.topic}:publish`, { messages: [{ data, attributes, orderingKey }] });
  };

  const table = new EventTable("Dead letters, the newest first", [
    TIME, MESSAGE, TOPIC,
    { label: "Subscription", cell: (event) => subscriptionCell(event.resource) },
    { label: "Attempts", class: "number", cell: (event) => event.attempt },
    { label: "Reason", cell: (event) => ({ text: reasons.get(key(event)) || "unknown", tone: "bad" }) },
    { label: "Dead-letter topic", cell: (event) => topicCell(event.detail) },
    DATA,
    { label: "", cell: (event) => h("span", { class: "buttons" },
      action("Resend", async () => {
        await resend(event);
        notify(`Message ${event.messageId} was published again.`, "good");
      }, { class: "quiet" }),
      event.topic ? h("a", { href: `${topicLink(event.topic)}?again=${event.messageId}` }, "Edit") : null) },
  ], "No message failed so often that it became a dead letter.");

  function take(events) {
    for (const event of events) if (event.kind !== "dead-letter") reasons.set(key(event), describe(event));
    return events.filter((event) => event.kind === "dead-letter");
  }

  const { events } = await get(`v0/events${query({ kind: KINDS, limit: 5000, project: ctx.project })}`);
  table.set(take(events));
  const summarize = () => setText(summary, `${count(table.events.length)} in the history of the newest ${count(ctx.status().broker.history)} events`);
  summarize();

  const all = action("Resend all", async () => {
    const wanted = table.events.filter((event) => event.topic);
    if (!(await confirm(`Publish ${wanted.length} messages to their topics again? All subscriptions of the topics receive them.`, "Resend"))) return;
    for (const event of [...wanted].reverse()) await resend(event);
    notify(`${wanted.length} messages were published again.`, "good");
  });

  return {
    title,
    element: h("div", null, summary, h("div", { class: "bar" }, all), table.element),
    events: () => ({ kind: KINDS }),
    onEvents: ({ events: newer, skipped }) => {
      table.add({ events: take(newer), skipped });
      summarize();
    },
  };
}

const key = (event) => `${event.resource} ${event.messageId}`;
