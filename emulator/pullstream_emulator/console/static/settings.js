// The settings of a resource as a list, with the JSON of the API for copying.

import { h } from "./dom.js";

const words = (name) => name.replace(/([A-Z])/g, " $1").toLowerCase();

function value(content) {
  if (content === null || typeof content !== "object") return String(content);
  return Object.entries(content).map(([name, each]) => `${words(name)}: ${value(each)}`).join(", ");
}

export function settingsList(settings) {
  const shown = Object.entries(settings).filter(([name]) => name !== "name");
  return h("details", { class: "settings" },
    h("summary", null, "Settings"),
    h("dl", null, shown.map(([name, content]) => [h("dt", null, words(name)), h("dd", null, value(content))])),
    h("pre", { class: "code", tabindex: "0" }, JSON.stringify(settings, null, 2)));
}
