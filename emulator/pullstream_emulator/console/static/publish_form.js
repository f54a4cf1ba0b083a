// The form that publishes messages to a topic.

import { isReadOnly, post } from "./api.js";
import { asText, bytes, fill, h, projectOf, SHOWN_AT_ONCE, toBase64, toBytes } from "./dom.js";
import { actionForm, copyButton, notify } from "./dialogs.js";
import { publishTexts } from "./copy.js";
import { OF_BROKER } from "./event_table.js";
import { messageLink } from "./links.js";

const MAX_COPIES = 1000;

/** Return {element, use(message)}; null in a read-only console. */
export function publishForm(ctx, topic, settings) {
  if (isReadOnly) return null;
  const data = h("textarea", { name: "data", rows: 4, spellcheck: "false", required: false });
  const key = h("input", { name: "key", spellcheck: "false" });
  const copies = h("input", { name: "copies", type: "number", min: 1, max: MAX_COPIES, value: 1 });
  const attributes = h("div", { class: "attributes" });
  const result = h("p", { role: "status" });
  const schema = settings.schemaSettings;
  let binary = null;

  function addAttribute(name = "", value = "") {
    const row = h("div", { class: "attribute" },
      h("input", { "aria-label": "Attribute name", placeholder: "name", value: name, spellcheck: "false" }),
      h("input", { "aria-label": "Attribute value", placeholder: "value", value, spellcheck: "false" }),
      h("button", { type: "button", class: "quiet", "aria-label": "Remove the attribute", onclick: () => row.remove() }, "✕"));
    attributes.append(row);
  }

  function message() {
    const made = { data: binary ?? toBase64(data.value) };
    const pairs = [...attributes.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value));
    const named = pairs.filter(([name]) => name);
    if (named.length) made.attributes = Object.fromEntries(named);
    if (key.value) made.orderingKey = key.value;
    return made;
  }

  /** Fill the form with an earlier message. */
  function use(earlier) {
    const start = toBytes(earlier.data, SHOWN_AT_ONCE);
    const isWhole = start.length === earlier.dataBytes;
    const text = isWhole ? asText(start) : null;
    // What cannot be edited here is published as it is.
    binary = text === null ? earlier.data : null;
    data.value = text ?? `(${bytes(earlier.dataBytes)} of data, published as it is)`;
    data.readOnly = text === null;
    key.value = earlier.orderingKey || "";
    fill(attributes);
    for (const [name, value] of Object.entries(earlier.attributes || {})) {
      if (!OF_BROKER.test(name)) addAttribute(name, value);
    }
    data.focus();
  }

  const form = actionForm(async (_, submitter) => {
    const one = message();
    if (submitter?.value === "check") {
      await post(`v1/projects/${projectOf(topic)}/schemas:validateMessage`, { name: schema.schema, encoding: schema.encoding, message: one.data });
      return notify("The message matches the schema.", "good");
    }
    const number = Math.min(Math.max(Number(copies.value) || 1, 1), MAX_COPIES);
    const { messageIds } = await post(`v1/${topic}:publish`, { messages: Array(number).fill(one) });
    const first = messageIds[0];
    fill(result, number > 1 ? `Published ${number} messages, from ` : "Published message ",
      h("a", { href: messageLink(topic, first) }, first), number > 1 ? ` to ${messageIds.at(-1)}.` : ".");
  }, { class: "publish", "aria-label": "Publish" },
    h("h2", null, "Publish"),
    h("label", null, schema ? `Data (${schema.encoding}, schema ${schema.schema.split("/").pop()})` : "Data", data),
    h("fieldset", null, h("legend", null, "Attributes"), attributes,
      h("button", { type: "button", class: "quiet", onclick: () => addAttribute() }, "Add an attribute")),
    h("div", { class: "bar" },
      h("label", null, "Ordering key", key),
      h("label", null, "Copies", copies)),
    h("div", { class: "bar" },
      h("button", { type: "submit", class: "primary", value: "publish" }, "Publish"),
      schema ? h("button", { type: "submit", value: "check" }, "Check against the schema") : null,
      copyButton("Copy as command", () => publishTexts(topic, message(), Number(copies.value) || 1))),
    result);

  return { element: form, use };
}
