// Search for resources by name, and for messages by id, data, attributes or ordering key.

import { get, query } from "./api.js";
import { h, LiveTable, shortName } from "./dom.js";
import { ATTRIBUTES, DATA, KEY, MESSAGE, TIME, TOPIC } from "./event_table.js";
import { schemaLink, subscriptionLink, topicLink } from "./links.js";

const MAX_RESOURCES = 200;

export async function search(ctx) {
  const text = ctx.parameters.get("q") || "";
  document.getElementById("search").value = text;
  const status = ctx.status();
  const wanted = text.toLowerCase();
  const found = [
    ...status.topics.map((each) => ["topic", each.name, topicLink(each.name)]),
    ...status.subscriptions.map((each) => ["subscription", each.name, subscriptionLink(each.name)]),
    ...status.schemas.map((each) => ["schema", each.name, schemaLink(each.name)]),
    ...status.routers.map((each) => ["router", each.name, "#/feeds"]),
  ].filter(([, name]) => name.toLowerCase().includes(wanted)).slice(0, MAX_RESOURCES);
  const resources = new LiveTable("Resources", [
    { label: "Name", cell: (each) => ({ text: shortName(each.name), href: each.link }) },
    { label: "Kind", cell: (each) => each.kind },
    { label: "Full name", cell: (each) => each.name },
  ], "No resource has this text in its name.");
  resources.update(found.map(([kind, name, link]) => ({ key: name, kind, name, link })));

  const messages = new LiveTable("Messages", [TIME, MESSAGE, TOPIC, KEY, DATA, ATTRIBUTES], "No message of the history has this text or id.");
  if (text && status.broker.history) {
    const common = { kind: "publish", limit: 100, project: ctx.project };
    const answers = await Promise.all([
      get(`v0/events${query({ ...common, text })}`),
      get(`v0/events${query({ ...common, message: text })}`),
    ]);
    const events = new Map(answers.flatMap((answer) => answer.events).map((event) => [event.number, event]));
    messages.update([...events.values()].sort((a, b) => b.number - a.number).map((event) => ({ ...event, key: event.number })));
  }
  return {
    title: text ? `Search for “${text}”` : "Search",
    element: h("div", null,
      h("section", null, h("h2", null, "Resources"), resources.element),
      h("section", null, h("h2", null, "Messages"), messages.element)),
  };
}
