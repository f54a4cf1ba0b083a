// One topic: live tail, publish form, subscriptions, settings.

import { get } from "./api.js";
import { count, duration, h, LiveTable, rate, setText, shortName } from "./dom.js";
import { action } from "./dialogs.js";
import { ATTRIBUTES, DATA, KEY, MESSAGE, TIME } from "./event_table.js";
import { subscriptionCell } from "./links.js";
import { noHistory } from "./messages.js";
import { publishForm } from "./publish_form.js";
import { settingsList } from "./settings.js";
import { tail } from "./tail.js";

export async function topic(ctx, name) {
  const settings = await get(`v1/${name}`);
  const facts = h("p", { class: "totals" });
  const subscriptions = new LiveTable("Subscriptions of the topic", [
    { label: "Subscription", cell: (each) => subscriptionCell(each.name) },
    { label: "Backlog", class: "number", cell: (each) => count(each.backlog) },
    { label: "Oldest", class: "number", cell: (each) => (each.backlog ? duration(each.oldestUnackedSeconds) : "") },
    { label: "Out", class: "number", cell: (each) => rate(ctx.rates.of(each.name, "delivered")) },
    { label: "Clients", class: "number", cell: (each) => (each.pushEndpoint ? "push" : each.streams + each.waitingPulls) },
  ], "The topic has no subscription, so nobody receives its messages.");

  const form = publishForm(ctx, name, settings);
  let list = { element: noHistory() };
  if (ctx.status().broker.history) {
    const again = { label: "", cell: (event) => action("Use again", async () => {
      const { message } = await get(`v0/messages/${event.messageId}?topic=${encodeURIComponent(name)}`);
      form.use(message);
    }, { class: "quiet" }) || "" };
    list = await tail(ctx, { topic: name, kind: "publish" }, "Messages, the newest first", [TIME, MESSAGE, KEY, DATA, ATTRIBUTES, again],
      "No message was published yet. New ones appear here.");
  }
  const source = ctx.parameters.get("again");
  if (source && form) {
    const { message } = await get(`v0/messages/${source}?topic=${encodeURIComponent(ctx.parameters.get("from") || name)}`);
    form.use(message);
  }

  function onStatus(status) {
    const own = status.topics.find((each) => each.name === name);
    if (own) setText(facts, `${name} · ${rate(ctx.rates.of(name, "published"))} in · ${count(own.published)} published since the start`);
    subscriptions.update(status.subscriptions.filter((each) => each.topic === name).map((each) => ({ ...each, key: each.name })));
  }

  return {
    title: `Topic ${shortName(name)}`,
    element: h("div", null, facts,
      h("section", null, h("h2", null, "Subscriptions"), subscriptions.element),
      form?.element,
      h("section", null, h("h2", null, "Messages"), list.element),
      settingsList(settings)),
    onStatus, events: list.events, onEvents: list.onEvents,
  };
}
