// Schemas with their revisions, and the topics that use them.

import { get, post, query } from "./api.js";
import { h, LiveTable, projectOf, shortName, toBase64 } from "./dom.js";
import { action, actionForm, confirm, notify } from "./dialogs.js";
import { schemaLink, topicLink } from "./links.js";

export async function schemas(ctx) {
  const table = new LiveTable("Schemas", [
    { label: "Schema", cell: (each) => ({ text: shortName(each.name), href: schemaLink(each.name), title: each.name }) },
    { label: "Project", cell: (each) => projectOf(each.name) },
    { label: "Type", cell: (each) => each.type },
    { label: "Revisions", class: "number", cell: (each) => each.revisions },
  ], "There is no schema.");
  const onStatus = (status) => table.update(status.schemas.map((each) => ({ ...each, key: each.name })));
  const create = actionForm(async (fields) => {
    const project = fields.get("project");
    const body = { type: fields.get("type"), definition: fields.get("definition") };
    const made = await post(`v1/projects/${project}/schemas${query({ schemaId: fields.get("id") })}`, body);
    location.hash = schemaLink(made.name);
  }, { class: "publish", "aria-label": "Create a schema" },
    h("h2", null, "Create a schema"),
    h("div", { class: "bar" },
      h("label", null, "Project", h("input", { name: "project", required: true, value: ctx.project, spellcheck: "false" })),
      h("label", null, "Name", h("input", { name: "id", required: true, spellcheck: "false" })),
      h("label", null, "Type", h("select", { name: "type" }, h("option", null, "AVRO"), h("option", null, "PROTOCOL_BUFFER")))),
    h("label", null, "Definition", h("textarea", { name: "definition", rows: 6, required: true, spellcheck: "false" })),
    h("div", { class: "bar" }, h("button", { type: "submit", class: "primary" }, "Create")));
  return { title: "Schemas", element: h("div", null, table.element, create), onStatus };
}

export async function schema(ctx, name) {
  const { schemas: revisions } = await get(`v1/${name}:listRevisions${query({ view: "FULL" })}`);
  const { topics = [] } = await get(`v1/projects/${projectOf(name)}/topics`);
  const users = topics.filter((topic) => topic.schemaSettings?.schema === name);
  const [newest] = revisions;
  const commit = actionForm(async (fields) => {
    await post(`v1/${name}:commit`, { schema: { name, type: newest.type, definition: fields.get("definition") } });
    notify("The revision was committed.", "good");
    ctx.reload();
  }, { class: "publish", "aria-label": "Commit a revision" },
    h("h2", null, "Commit a revision"),
    h("label", null, "Definition", h("textarea", { name: "definition", rows: 8, required: true, spellcheck: "false", value: newest.definition })),
    h("div", { class: "bar" }, h("button", { type: "submit", class: "primary" }, "Commit")));
  const check = actionForm(async (fields) => {
    await post(`v1/projects/${projectOf(name)}/schemas:validateMessage`, { name, encoding: "JSON", message: toBase64(fields.get("message")) });
    notify("The message matches the schema.", "good");
  }, { class: "publish", "aria-label": "Check a message" },
    h("h2", null, "Check a message"),
    h("label", null, "Message in JSON", h("textarea", { name: "message", rows: 3, spellcheck: "false" })),
    h("div", { class: "bar" }, h("button", { type: "submit" }, "Check")));
  return {
    title: `Schema ${shortName(name)}`,
    element: h("div", null,
      h("p", { class: "totals" }, `${name} · ${newest.type} · used by `,
        users.length ? users.map((topic, index) => [index ? ", " : "", h("a", { href: topicLink(topic.name) }, shortName(topic.name))]) : "no topic"),
      revisions.map((revision, index) => h("details", { open: index === 0 },
        h("summary", null, `Revision ${revision.revisionId}, ${revision.revisionCreateTime}${index ? "" : " (newest)"}`),
        h("pre", { class: "code", tabindex: "0" }, pretty(revision.definition)),
        index ? action("Roll back to this revision", async () => {
          if (!(await confirm(`Commit revision ${revision.revisionId} again as the newest one?`, "Roll back"))) return;
          await post(`v1/${name}:rollback`, { revisionId: revision.revisionId });
          ctx.reload();
        }) : null)),
      commit, check),
  };
}

function pretty(definition) {
  try {
    return JSON.stringify(JSON.parse(definition), null, 2);
  } catch {
    return definition;
  }
}
