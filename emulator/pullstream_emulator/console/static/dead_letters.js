// The stored dead letters, with the reason of their last failure: resend one, edit it, or resend all.

import { get, post, query } from "./api.js";
import { count, h, LiveTable, preview, setText, shortName } from "./dom.js";
import { action, confirm, notify } from "./dialogs.js";
import { describe } from "./event_table.js";
import { messageCell, subscriptionCell, topicCell, topicLink } from "./links.js";

const KINDS = "nack,expiry,push";
const PREFIX = "CloudPubSubDeadLetterSource";
const SHOWN = 100;

export async function deadLetters(ctx) {
  // Reasons in the history, by source subscription and publish time of the message there.
  const reasons = new Map();
  const summary = h("p", { class: "totals" });
  const warning = h("p", { class: "error" });
  let letters = [];

  const resend = ({ subscription, message }) => post("v0/dead-letters/resend", { subscription, messageId: message.messageId });

  const table = new LiveTable("Dead letters, the oldest first", [
    { label: "Message", cell: (row) => messageCell(row.topic, row.message.messageId) },
    { label: "Stored in", cell: (row) => subscriptionCell(row.subscription) },
    { label: "Source", cell: (row) => (row.source ? subscriptionCell(row.source) : "unknown") },
    { label: "Attempts", class: "number", cell: (row) => row.message.attributes?.[`${PREFIX}DeliveryCount`] || "" },
    { label: "Reason", cell: (row) => ({ text: row.reason || reasons.get(sourceKey(row)) || "unknown", tone: "bad" }) },
    { label: "Goes back to", cell: (row) => topicCell(row.sourceTopic) },
    { label: "Data", class: "data", cell: (row) => preview(row.message, 80) },
    { label: "", cell: (row) => h("span", { class: "buttons" },
      row.sourceTopic ? action("Resend", async () => {
        const { messageId } = await resend(row);
        notify(`Message ${row.message.messageId} was published to ${shortName(row.sourceTopic)} as ${messageId}, and acknowledged here.`, "good");
        await load();
      }, { class: "quiet" }) : null,
      row.sourceTopic ? h("a", { href: `${topicLink(row.sourceTopic)}?again=${row.message.messageId}&from=${encodeURIComponent(row.topic)}` }, "Edit") : null) },
  ], "No dead letter is stored.");

  const all = action("Resend all", async () => {
    const wanted = letters.filter((row) => row.sourceTopic && !row.isLeased);
    if (!(await confirm(`Publish ${wanted.length} messages to their topics again, and acknowledge them here? All subscriptions of the topics receive them.`, "Resend"))) return;
    let sent = 0;
    try {
      for (const row of wanted) {
        await resend(row);
        sent += 1;
      }
    } finally {
      await load();
    }
    notify(`${sent} messages were published again, and acknowledged here.`, "good");
  });

  async function load() {
    const stored = await get(`v0/dead-letters${query({ limit: SHOWN, project: ctx.project })}`);
    letters = stored.deadLetters;
    table.update(letters.map((row) => ({ ...row, key: `${row.subscription} ${row.message.messageId}` })));
    setText(summary, `${count(letters.length + stored.further)} stored in dead-letter subscriptions${stored.further ? `, the first ${SHOWN} are shown` : ""}`);
    const lost = stored.topicsWithoutSubscription;
    setText(warning, lost.length ? `Dead letters are lost: ${lost.join(", ")} ${lost.length > 1 ? "have" : "has"} no subscription that would store them.` : "");
    warning.hidden = !lost.length;
  }

  function note(events) {
    for (const event of events) reasons.set(key(event.resource, event.message.publishTime), describe(event));
  }

  const hasHistory = Boolean(ctx.status().broker.history);
  if (hasHistory) note((await get(`v0/events${query({ kind: KINDS, limit: 5000, project: ctx.project })}`)).events);
  await load();
  return {
    title: "Dead letters",
    element: h("div", null, summary, warning, h("div", { class: "bar" }, all), table.element),
    onStatus: () => load(),
    events: hasHistory ? () => ({ kind: KINDS }) : undefined,
    onEvents: ({ events }) => note(events),
  };
}

const key = (subscription, time) => `${subscription} ${new Date(time).getTime()}`;
const sourceKey = (row) => key(row.source, row.message.attributes?.[`${PREFIX}TopicPublishTime`]);
