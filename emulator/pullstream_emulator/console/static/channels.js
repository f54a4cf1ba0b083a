// Channels: sessions of subscribers, their keys, and their mailboxes.

import { bytes, count, h, LiveTable } from "./dom.js";
import { topicCell } from "./links.js";

export function channels() {
  const counters = h("dl", { class: "figures" });
  const sessions = new LiveTable("Subscribers", [
    { label: "Subscriber", cell: (each) => each.id },
    { label: "Keys", class: "number", cell: (each) => count(each.keys) },
    { label: "Channels", cell: (each) => (each.channels.length === 1 ? topicCell(each.channels[0]) : `${count(each.channels.length)} channels`) },
    { label: "Mailbox", class: "number", cell: (each) => `${count(each.waiting)} messages` },
    { label: "Poll", cell: (each) => (each.isPolling ? { text: "waits", tone: "good" } : { text: "away", tone: "warn" }) },
  ], "Nobody subscribes to a channel.");
  return {
    title: "Channels",
    element: h("div", null, counters, h("section", null, h("h2", null, "Subscribers"), sessions.element)),
    onStatus({ channels: state }) {
      if (!state) {
        counters.replaceChildren("Channels are not part of one project. Choose all projects, with a token for all of them.");
        return;
      }
      const shown = [
        ["Subscribers", count(state.subscribers)], ["Waiting polls", count(state.parked)], ["Keys with a subscriber", count(state.interests)],
        ["Messages in mailboxes", `${count(state.waiting)}, ${bytes(state.waitingBytes)}`], ["Published", count(state.published)], ["Dropped", count(state.dropped)],
      ];
      counters.replaceChildren(...shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
      sessions.update((state.sessions || []).map((each) => ({ ...each, key: each.id })));
    },
  };
}
