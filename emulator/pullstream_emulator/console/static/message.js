// One message: payload, attributes, and the timeline of its life.

import { get } from "./api.js";
import { asHex, asText, bytes, clock, duration, fill, h, prettyJson, setText, shortName, toBytes } from "./dom.js";
import { copyButton } from "./dialogs.js";
import { assertionTexts, publishTexts } from "./copy.js";
import { describe, TONES } from "./event_table.js";
import { resourceLink, topicLink } from "./links.js";

export async function message(ctx, topic, id) {
  const path = `v0/messages/${encodeURIComponent(id)}?topic=${encodeURIComponent(topic)}`;
  let life = await get(path);
  const timeline = h("ol", { class: "timeline" });
  draw(timeline, life.events);
  const incomplete = h("p", { class: "note" }, "The history does not reach back to the publish of this message.");
  incomplete.hidden = life.events[0]?.kind === "publish";
  let timer = 0;

  function onEvents() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const newer = await get(path).catch(() => null);
      if (newer && newer.events.length !== life.events.length) {
        life = newer;
        draw(timeline, life.events);
      }
    }, 100);
  }
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));

  const shown = life.message;
  const attributes = Object.entries(shown.attributes || {});
  return {
    title: `Message ${id} of ${shortName(topic)}`,
    events: () => ({ topic, message: id }),
    onEvents,
    element: h("div", null,
      h("p", { class: "totals" }, "Topic ", h("a", { href: topicLink(topic) }, topic), ` · ${bytes(shown.dataBytes)} · published ${shown.publishTime}`),
      h("div", { class: "bar" },
        copyButton("Copy as pytest assertion", () => assertionTexts(topic, life.message, life.events)),
        copyButton("Copy as publish command", () => publishTexts(topic, life.message)),
        h("a", { class: "button", href: `${topicLink(topic)}?again=${encodeURIComponent(id)}` }, "Publish again")),
      h("div", { class: "columns" },
        h("section", null, h("h2", null, "Life"), incomplete, timeline),
        h("section", null, h("h2", null, "Data"), payload(life),
          h("h2", null, "Attributes"),
          attributes.length ? h("dl", null, attributes.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])) : h("p", { class: "empty" }, "none"),
          shown.orderingKey ? h("p", null, h("strong", null, "Ordering key: "), shown.orderingKey) : null))),
  };
}

function draw(list, events) {
  let before = null;
  fill(list, events.map((event) => {
    const time = new Date(event.time).getTime();
    const later = before === null ? "" : `+${duration((time - before) / 1000)}`;
    before = time;
    return h("li", { "data-tone": TONES[event.kind] || "" },
      h("span", { class: "time", title: event.time }, clock(event.time)), " ",
      h("span", { class: "later" }, later), " ",
      h("span", { class: "what" }, describe(event)), " ",
      event.kind === "publish" ? "" : h("a", { href: resourceLink(event.resource), title: event.resource }, shortName(event.resource)));
  }));
}

/** The payload in each form that it has; the most readable one first. */
function payload(life) {
  const data = toBytes(life.message.data);
  const forms = [];
  const text = asText(data);
  const json = text === null ? null : prettyJson(text);
  // Data in JSON is shown as it is: a browser would round its large numbers.
  if (json !== null) forms.push(["JSON", json]);
  else if (life.decoded !== undefined) forms.push(["by its schema", JSON.stringify(life.decoded, null, 2)]);
  if (text !== null) forms.push(["text", text]);
  forms.push(["hex", asHex(data)]);
  const code = h("pre", { class: "code", tabindex: "0" });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Form of the data" });
  const choose = (name, content) => {
    setText(code, content);
    for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab.textContent === name));
  };
  fill(tabs, forms.map(([name, content]) => h("button", { type: "button", onclick: () => choose(name, content) }, name)));
  choose(...forms[0]);
  return h("div", null, tabs, data.length ? code : h("p", { class: "empty" }, "no data"));
}
