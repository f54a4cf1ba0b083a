// One message: payload, attributes, and the timeline of its life.

import { get } from "./api.js";
import { asHex, asText, bytes, clock, duration, fill, h, prettyJson, setText, shortName, SHOWN_AT_ONCE, toBytes } from "./dom.js";
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

/** The payload in each form that it has; the most readable one first, and first its beginning. */
function payload(life) {
  const { data, dataBytes } = life.message;
  if (!dataBytes) return h("p", { class: "empty" }, "no data");
  const forms = formsOf(life);
  const code = h("pre", { class: "code", tabindex: "0" });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Form of the data" });
  const note = h("span", { class: "note" });
  let chosen = Object.keys(forms)[0];
  let limit = SHOWN_AT_ONCE;
  const show = () => {
    // A form is computed when it is chosen, because each of them takes time.
    setText(code, forms[chosen](toBytes(data, limit), limit));
    for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab.textContent === chosen));
    setText(note, `The first ${bytes(Math.min(limit, dataBytes))} of ${bytes(dataBytes)}. `);
    rest.hidden = limit >= dataBytes;
  };
  const rest = h("p", null, note, h("button", { type: "button", class: "quiet", onclick: () => {
    limit += SHOWN_AT_ONCE;
    show();
  } }, "More"));
  fill(tabs, Object.keys(forms).map((name) => h("button", { type: "button", onclick: () => {
    chosen = name;
    show();
  } }, name)));
  show();
  return h("div", null, tabs, code, rest);
}

/** The forms of a payload by name: functions of its first bytes, and of how many characters to show. */
function formsOf(life) {
  const { data, dataBytes } = life.message;
  const start = toBytes(data, SHOWN_AT_ONCE);
  const text = asText(start, start.length < dataBytes);
  const isText = text !== null;
  const forms = {};
  const asJson = (some) => {
    const isBeginning = some.length < dataBytes;
    return prettyJson(asText(some, isBeginning) ?? "", isBeginning);
  };
  // Data in JSON is shown as it is: a browser would round its large numbers.
  if (isText && asJson(start) !== null) forms.JSON = (some) => asJson(some) ?? "The data is not JSON.";
  else if (life.decoded !== undefined) forms["by its schema"] = (_, limit) => JSON.stringify(life.decoded, null, 2).slice(0, limit);
  if (isText) forms.text = (some) => new TextDecoder().decode(some);
  forms.hex = asHex;
  return forms;
}
