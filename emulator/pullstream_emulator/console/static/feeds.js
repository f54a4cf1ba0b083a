// Feeds: windows, gaps, watchers, cursors and routers.

import { bytes, count, h, LiveTable, rate, shortName } from "./dom.js";
import { topicCell } from "./links.js";

export function feeds(ctx) {
  const windows = new LiveTable("Feeds", [
    { label: "Topic", cell: (each) => topicCell(each.topic) },
    { label: "Window", cell: (each) => (each.count ? `${count(each.earliestSeq)} to ${count(each.headSeq)}` : `empty, at ${count(each.headSeq)}`) },
    { label: "Records", class: "number", cell: (each) => count(each.count) },
    { label: "Size", class: "number", cell: (each) => bytes(each.bytes) },
    { label: "Watchers", class: "number", cell: (each) => count(each.watchers) },
    { label: "Gaps", class: "data", cell: (each) => (each.missing.length
      ? { text: each.missing.map(([first, last]) => (first === last ? count(first) : `${count(first)}–${count(last)}`)).join(", "), tone: "warn" }
      : "none") },
  ], "No topic is read as a feed.");
  const routers = new LiveTable("Routers", [
    { label: "Router", cell: (each) => ({ text: shortName(each.name), title: each.name }) },
    { label: "From", cell: (each) => topicCell(each.source) },
    { label: "To", cell: (each) => topicCell(each.dest) },
    { label: "Filter", class: "data", cell: (each) => each.filter || "all messages" },
    { label: "Copied", class: "number", cell: (each) => `${count(each.forwarded)}, ${rate(ctx.rates.of(each.name, "forwarded"))}` },
    { label: "State", cell: (each) => (each.phase === "waiting"
      ? { text: `waits for room, ${count(each.behind)} behind`, tone: "bad" }
      : each.behind ? { text: `${count(each.behind)} behind`, tone: "warn" } : { text: "caught up", tone: "good" }) },
  ], "There is no router.");
  const cursors = new LiveTable("Cursors", [
    { label: "Cursor", cell: (each) => ({ text: shortName(each.name), title: each.name }) },
    { label: "Topic", cell: (each) => topicCell(each.topic) },
    { label: "Position", class: "number", cell: (each) => count(each.seq) },
    { label: "Behind", class: "number", cell: (each) => count(each.behind) },
  ], "There is no cursor.");
  return {
    title: "Feeds",
    element: h("div", null,
      h("section", null, h("h2", null, "Windows"), windows.element),
      h("section", null, h("h2", null, "Routers"), routers.element),
      h("section", null, h("h2", null, "Cursors"), cursors.element)),
    onStatus(status) {
      windows.update(status.feeds.map((each) => ({ ...each, key: each.topic })));
      routers.update(status.routers.map((each) => ({ ...each, key: each.name })));
      cursors.update(status.cursors.map((each) => ({ ...each, key: each.name })));
    },
  };
}
