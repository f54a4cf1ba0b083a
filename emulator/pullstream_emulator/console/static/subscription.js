// One subscription: messages without a lease, clients, and actions.

import { CallError, get, post, call, query } from "./api.js";
import { count, duration, h, LiveTable, preview, projectOf, rate, setText, shortName, bytes, fill } from "./dom.js";
import { action, actionForm, confirm, copyButton, notify } from "./dialogs.js";
import { pullTexts } from "./copy.js";
import { attributesText } from "./event_table.js";
import { messageCell, topicLink } from "./links.js";
import { settingsList } from "./settings.js";

const STATE_TONES = { leased: "good", delayed: "warn" };

export async function subscription(ctx, name) {
  const settings = await get(`v1/${name}`);
  const project = projectOf(name);
  const base = `v0/subscriptions/${encodeURIComponent(shortName(name))}`;
  const facts = h("p", { class: "totals" });
  const problem = h("p", { class: "error", role: "alert" });
  const more = h("p", { class: "note" });
  const isPush = Boolean(settings.pushConfig?.pushEndpoint);
  let pulled = [];

  const messages = new LiveTable("Unacknowledged messages, the oldest first", [
    { label: "State", cell: (row) => ({ text: stateText(row), tone: STATE_TONES[row.state] }) },
    { label: "Message", cell: (row) => messageCell(settings.topic, row.message.messageId) },
    { label: "Key", cell: (row) => row.message.orderingKey || "" },
    { label: "Failed", class: "number", cell: (row) => row.attempts },
    { label: "Client", cell: (row) => row.client || "" },
    { label: "Data", class: "data", cell: (row) => preview(row.message, 80) },
    { label: "Attributes", class: "data", cell: (row) => attributesText(row.message) },
  ], "There is no unacknowledged message.");
  const clients = new LiveTable("Clients", [
    { label: "Client", cell: (row) => row.client || "unnamed" },
    { label: "Kind", cell: (row) => row.kind },
    { label: "Holds", class: "number", cell: (row) => `${count(row.outstandingMessages)}, ${bytes(row.outstandingBytes)}` },
    { label: "Wants at most", class: "number", cell: (row) => limits(row) },
    { label: "Ack deadline", class: "number", cell: (row) => `${row.ackDeadlineSeconds} s` },
    { label: "Flow control", cell: (row) => (row.hasRoom ? { text: "has room", tone: "good" } : { text: "full: gets no more", tone: "warn" }) },
  ], isPush ? "The broker pushes to the endpoint." : "No client receives messages now.");
  const held = new LiveTable("Messages that this page has pulled", [
    { label: "Message", cell: (row) => messageCell(settings.topic, row.message.messageId) },
    { label: "Data", class: "data", cell: (row) => preview({ ...row.message, dataBytes: 0 }, 80) },
    { label: "", cell: (row) => h("span", { class: "buttons" },
      action("Ack", () => settle([row], "ack"), { class: "quiet" }),
      action("Nack", () => settle([row], "nack"), { class: "quiet" })) },
  ], "");
  const heldSection = h("section", { hidden: true }, h("h2", null, "Pulled by this page"), held.element);

  const filter = h("input", { name: "filter", class: "wide-input", placeholder: 'attributes.type = "order"', spellcheck: "false", value: ctx.parameters.get("filter") || "" });
  const state = h("select", { name: "state" }, ["", "waiting", "leased", "delayed", "acknowledged"].map((each) => h("option", { value: each }, each || "all")));
  state.value = ctx.parameters.get("state") || "";

  async function load() {
    try {
      const [shown, present] = await Promise.all([
        get(`${base}/messages${query({ project, state: state.value, filter: filter.value.trim(), limit: 100 })}`),
        get(`${base}/clients${query({ project })}`),
      ]);
      setText(problem, "");
      messages.update(shown.messages.map((row) => ({ ...row, key: row.message.messageId })));
      setText(more, shown.further ? `${count(shown.further)} more` : "");
      clients.update(present.clients.map((row, index) => ({ ...row, key: index })));
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      setText(problem, error.message);
    }
  }

  function showHeld() {
    held.update(pulled.map((row) => ({ ...row, key: row.ackId })));
    heldSection.hidden = !pulled.length;
  }

  async function settle(rows, how) {
    const ackIds = rows.map((row) => row.ackId);
    if (how === "ack") await post(`v1/${name}:acknowledge`, { ackIds });
    else await post(`v1/${name}:modifyAckDeadline`, { ackIds, ackDeadlineSeconds: 0 });
    pulled = pulled.filter((row) => !rows.includes(row) && !ackIds.includes(row.ackId));
    showHeld();
    await load();
  }

  const pull = actionForm(async (fields) => {
    const answer = await post(`v1/${name}:pull`, { maxMessages: Number(fields.get("count")), returnImmediately: true });
    const received = answer.receivedMessages || [];
    pulled = [...pulled, ...received];
    notify(received.length ? `Pulled ${received.length} messages. They are leased to this page.` : "There was no message to pull.");
    showHeld();
    await load();
  }, { class: "bar", "aria-label": "Receive messages" },
    h("label", null, "Pull", h("input", { name: "count", type: "number", min: 1, max: 100, value: 1 })),
    h("button", { type: "submit", disabled: isPush }, "Pull"));

  const seek = actionForm(async (fields, submitter) => {
    const snapshot = fields.get("snapshot");
    if (submitter.value === "snapshot") {
      await call("PUT", `v1/projects/${project}/snapshots/${encodeURIComponent(fields.get("name"))}`, { subscription: name });
      notify("The snapshot was created.", "good");
      await listSnapshots();
      return;
    }
    if (submitter.value === "seek-snapshot") await post(`v1/${name}:seek`, { snapshot });
    else await post(`v1/${name}:seek`, { time: new Date(fields.get("time")).toISOString() });
    notify("The subscription continues from there.", "good");
    await load();
  }, { class: "bar", "aria-label": "Seek" },
    h("label", null, "Seek to", h("input", { name: "time", type: "datetime-local", step: 1 })),
    h("button", { type: "submit", value: "seek-time" }, "Seek to the time"),
    h("label", null, "Snapshot", h("select", { name: "snapshot" })),
    h("button", { type: "submit", value: "seek-snapshot" }, "Seek to the snapshot"),
    h("label", null, "New snapshot", h("input", { name: "name", spellcheck: "false" })),
    h("button", { type: "submit", value: "snapshot" }, "Create"));

  async function listSnapshots() {
    if (!seek) return;
    const { snapshots = [] } = await get(`v1/projects/${project}/snapshots`);
    const own = snapshots.filter((each) => each.topic === settings.topic);
    fill(seek.elements.snapshot, own.map((each) => h("option", { value: each.name }, shortName(each.name))));
  }

  const purge = action("Purge", async () => {
    if (!(await confirm(`Remove all messages of ${shortName(name)}? They count as acknowledged.`, "Purge"))) return;
    await post(`v1/${name}:seek`, { time: new Date(ctx.status().broker.time * 1000 + 1000).toISOString() });
    notify("All messages were removed.", "good");
    await load();
  }, { class: "danger" });

  const form = h("form", { class: "bar", onsubmit: async (event) => {
    event.preventDefault();
    ctx.setParameter("filter", filter.value.trim());
    ctx.setParameter("state", state.value);
    await load();
  } }, h("label", null, "State", state), h("label", null, "Test a filter", filter), h("button", { type: "submit" }, "Apply"), more);

  function onStatus(status) {
    const own = status.subscriptions.find((each) => each.name === name);
    if (!own) return;
    const failing = ctx.rates.of(name, "nacked") + ctx.rates.of(name, "expired");
    setText(facts, `${count(own.backlog)} unacknowledged${own.backlog ? `, oldest ${duration(own.oldestUnackedSeconds)}` : ""} · ` +
      `${count(own.leased)} leased · ${count(own.delayed)} delayed · ${rate(ctx.rates.of(name, "delivered"))} out · ` +
      `${rate(ctx.rates.of(name, "acknowledged"))} acknowledged${failing ? ` · ${rate(failing)} failing` : ""}`);
    load();
  }

  await Promise.all([load(), listSnapshots()]);
  return {
    title: `Subscription ${shortName(name)}`,
    element: h("div", null,
      h("p", null, "Of topic ", settings.topic.includes("/topics/") ? h("a", { href: topicLink(settings.topic) }, settings.topic) : "a deleted topic",
        isPush ? `, pushed to ${settings.pushConfig.pushEndpoint}` : ""),
      facts,
      h("div", { class: "bar" }, pull, purge, copyButton("Copy as command", () => pullTexts(name))),
      heldSection,
      h("section", null, h("h2", null, "Messages"), form, problem, messages.element),
      h("section", null, h("h2", null, "Clients"), clients.element),
      seek ? h("section", null, h("h2", null, "Seek"), seek) : null,
      settingsList(settings)),
    onStatus,
  };
}

function stateText(row) {
  if (row.state === "leased") return `leased, ${duration(row.leaseSeconds)} left`;
  if (row.state === "delayed") return `delayed, ${duration(row.delaySeconds)} left`;
  if (row.state === "acknowledged") return "acknowledged, waits for an earlier one";
  return row.state;
}

function limits(row) {
  const parts = [];
  if (row.maxOutstandingMessages > 0) parts.push(`${count(row.maxOutstandingMessages)} messages`);
  if (row.maxOutstandingBytes > 0) parts.push(bytes(row.maxOutstandingBytes));
  return parts.join(", ") || "no limit";
}
