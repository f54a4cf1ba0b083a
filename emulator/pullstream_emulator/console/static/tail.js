// A live tail of events with pause, filter and a count of the skipped ones.

import { CallError, get, query } from "./api.js";
import { count, h, setText } from "./dom.js";
import { EventTable } from "./event_table.js";

/**
 * Return a tail.
 *
 * @param ctx the screen's context.
 * @param fixed the parameters of GET /v0/events that do not change.
 * @param columns the columns of the table.
 * @param empty the text without an event.
 */
export async function tail(ctx, fixed, caption, columns, empty) {
  const table = new EventTable(caption, columns, empty);
  const skipped = h("span", { class: "note", role: "status" });
  const problem = h("p", { class: "error", role: "alert" });
  const filter = h("input", {
    name: "filter", class: "wide-input", placeholder: 'attributes.type = "order"', spellcheck: "false",
    value: ctx.parameters.get("filter") || "",
  });
  const text = h("input", { name: "text", placeholder: "contains", spellcheck: "false", value: ctx.parameters.get("text") || "" });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    table.pause(!table.isPaused);
    pause.setAttribute("aria-pressed", String(table.isPaused));
    setText(pause, table.isPaused ? "Continue" : "Pause");
  } }, "Pause");
  table.onChange = () => {
    const parts = [];
    if (table.isPaused) parts.push(`paused, ${count(table.pending.length)} new`);
    if (table.skipped) parts.push(`${count(table.skipped)} not shown`);
    setText(skipped, parts.join(", "));
  };

  const wanted = () => ({ ...fixed, filter: filter.value.trim(), text: text.value });

  async function load() {
    setText(problem, "");
    try {
      const answer = await get(`v0/events${query({ ...wanted(), limit: 100, project: ctx.project })}`);
      table.set(answer.events);
    } catch (error) {
      if (!(error instanceof CallError) || error.status === 401) throw error;
      setText(problem, error.message);
      return false;
    }
    return true;
  }

  const form = h("form", { class: "bar", onsubmit: async (event) => {
    event.preventDefault();
    if (await load()) {
      ctx.setParameter("filter", filter.value.trim());
      ctx.setParameter("text", text.value);
      ctx.listen();
    }
  } },
    h("label", null, "Filter", filter),
    h("label", null, "Text", text),
    h("button", { type: "submit" }, "Apply"), pause, skipped);

  await load();
  return { element: h("div", null, form, problem, table.element), events: wanted, onEvents: (batch) => table.add(batch), table };
}
