// Faults: set, lift, count. The broker's clock: advance it.

import { call, get, isReadOnly, post, query } from "./api.js";
import { count, h, LiveTable, setText } from "./dom.js";
import { action, actionForm, notify } from "./dialogs.js";

// For each kind, the fields that it needs, and the fields that it may have.
const KINDS = {
  error: [["method", "code"], ["message"], "calls of the method fail with this code"],
  delay: [["method", "seconds"], [], "calls of the method wait"],
  "lose-reply": [["method"], ["code"], "the broker carries the call out, but its reply is lost"],
  drop: [["method"], [], "calls of the method get no answer"],
  "abort-streams": [["code"], ["message"], "open streams end with this code, once"],
  "close-streams": [[], [], "open streams end, once"],
  "abort-streams-after": [["responses", "code"], ["message"], "a stream ends after so many responses"],
  "silence-streams": [[], [], "streams stay open without messages"],
  "duplicate-deliveries": [[], [], "messages are delivered twice"],
  "shuffle-deliveries": [[], [], "messages without a key are delivered in another order"],
  "expire-leases": [[], [], "leases end before their ack deadline"],
};
const SCOPE = ["resource", "probability", "times"];
const METHODS = ["StreamingPull", "Pull", "Acknowledge", "ModifyAckDeadline", "Publish", "CreateSubscription", "Seek", "*"];
const CODES = ["UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "CANCELLED", "UNKNOWN"];
const STEPS = [["10 s", 10], ["1 min", 60], ["10 min", 600], ["1 h", 3600], ["1 d", 86400]];

export async function faults(ctx) {
  const time = h("strong");
  const table = new LiveTable("Faults in force", [
    { label: "Fault", cell: (each) => each.kind },
    { label: "Method", cell: (each) => (each.method === "*" ? "" : each.method) },
    { label: "Details", class: "data", cell: (each) => details(each) },
    { label: "Hits", class: "number", cell: (each) => count(each.hits) },
    { label: "", cell: (each) => action("Lift", async () => {
      await call("DELETE", `v0/admin/faults/${each.id}`);
      await load();
    }, { class: "quiet" }) || "" },
  ], "No fault is in force.");

  async function load() {
    const [{ faults: active }, clock] = await Promise.all([get("v0/admin/faults"), get("v0/admin/clock")]);
    table.update(active.map((each) => ({ ...each, key: each.id })));
    setText(time, clock.now);
  }

  const inputs = {
    method: h("select", { name: "method" }, METHODS.map((each) => h("option", null, each))),
    code: h("select", { name: "code" }, CODES.map((each) => h("option", null, each))),
    seconds: h("input", { name: "seconds", type: "number", min: 0, step: "any", value: 1 }),
    responses: h("input", { name: "responses", type: "number", min: 0, value: 10 }),
    message: h("input", { name: "message" }),
    resource: h("input", { name: "resource", placeholder: "all", spellcheck: "false" }),
    probability: h("input", { name: "probability", type: "number", min: 0, max: 1, step: "any", placeholder: "1" }),
    times: h("input", { name: "times", type: "number", min: 1, placeholder: "no limit" }),
  };
  const labels = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, h("label", null, name === "resource" ? "topic or subscription" : name, input)]));
  const kind = h("select", { name: "kind", onchange: showFields }, Object.keys(KINDS).map((each) => h("option", null, each)));
  const meaning = h("p", { class: "note" });
  const fieldsOf = (name) => [...KINDS[name][0], ...KINDS[name][1], ...(name === "silence-streams" ? ["resource"] : SCOPE)];
  function showFields() {
    for (const [name, label] of Object.entries(labels)) label.hidden = !fieldsOf(kind.value).includes(name);
    setText(meaning, `${kind.value}: ${KINDS[kind.value][2]}`);
  }
  showFields();

  const form = actionForm(async () => {
    const body = { kind: kind.value };
    for (const name of fieldsOf(kind.value)) {
      const input = inputs[name];
      if (input.value !== "") body[name] = input.type === "number" ? Number(input.value) : input.value;
    }
    const made = await post("v0/admin/faults", body);
    notify(`The fault ${made.kind} is in force.`, "good");
    await load();
  }, { class: "publish", "aria-label": "Set a fault" },
    h("h2", null, "Set a fault"),
    h("div", { class: "bar" }, h("label", null, "kind", kind), Object.values(labels)),
    meaning,
    h("div", { class: "bar" }, h("button", { type: "submit", class: "primary" }, "Set")));

  const advance = async (seconds) => {
    const before = ctx.status().broker.history ? (await get("v0/events?limit=1")).newest : null;
    await post("v0/admin/clock:advance", { seconds });
    notify(`The clock was advanced by ${count(seconds)} s.${before === null ? "" : await effects(before)}`, "good");
    await load();
  };
  const clock = h("section", null,
    h("h2", null, "Clock"),
    h("p", null, "The broker's time is ", time, "."),
    isReadOnly ? null : h("p", { class: "bar" }, STEPS.map(([label, seconds]) => action(`+ ${label}`, () => advance(seconds)))),
    actionForm((fields) => advance(Number(fields.get("seconds"))), { class: "bar", "aria-label": "Advance the clock" },
      h("label", null, "Seconds", h("input", { name: "seconds", type: "number", min: 0, step: "any", required: true, value: 30 })),
      h("button", { type: "submit" }, "Advance")));

  await load();
  return {
    title: "Faults and clock",
    element: h("div", null,
      h("section", null, h("h2", null, "Faults"), table.element,
        h("div", { class: "bar" }, action("Lift all", async () => {
          await call("DELETE", "v0/admin/faults");
          await load();
        }))),
      form, clock),
    onStatus: () => load().catch((error) => notify(error.message, "bad")),
  };
}

const EFFECTS = { expiry: "leases ended", "dead-letter": "messages became dead letters", delivery: "messages were delivered again", push: "messages were pushed" };

/** What has happened since an event, in words. */
async function effects(after) {
  const { events, skipped } = await get(`v0/events${query({ kind: Object.keys(EFFECTS).join(), after, limit: 5000 })}`);
  const parts = Object.entries(EFFECTS)
    .map(([kind, words]) => [events.filter((event) => event.kind === kind).length, words])
    .filter(([number]) => number)
    .map(([number, words]) => `${count(number)} ${words}`);
  if (skipped) parts.push("and more");
  return parts.length ? ` ${parts.join(", ")}.` : " Nothing was due.";
}

function details(fault) {
  const skipped = new Set(["id", "kind", "method", "hits", "key"]);
  return Object.entries(fault)
    .filter(([name, value]) => !skipped.has(name) && value !== null && value !== "" && !(name === "resource" && value === "*") && !(name === "probability" && value === 1))
    .map(([name, value]) => `${name} ${value}`).join(", ");
}
