// The map: topics, subscriptions, endpoints, dead-letter topics and routers as a graph.

import { count, duration, fill, h, rate, setText, shortName } from "./dom.js";
import { subscriptionLink, topicLink } from "./links.js";

const COLUMN = 272;
const WIDTH = 232;
const ROW = 92;
const SVG = "http://www.w3.org/2000/svg";

// A message that waits longer than this without any reader marks its subscription.
const STALLED_SECONDS = 10;

export function map(ctx) {
  const canvas = h("div", { class: "graph" });
  const empty = h("div", { class: "empty" });
  const totals = h("p", { class: "totals" });
  let shape = "";
  let boxes = new Map();

  function onStatus(status) {
    const graph = build(status, ctx.rates);
    const newShape = JSON.stringify([graph.nodes.map((node) => node.id), graph.edges]);
    if (newShape !== shape) {
      shape = newShape;
      boxes = draw(canvas, graph);
    }
    for (const node of graph.nodes) update(boxes.get(node.id), node);
    const backlog = status.subscriptions.reduce((sum, each) => sum + each.backlog, 0);
    const bad = graph.nodes.filter((node) => node.problem).length;
    setText(totals, `${count(status.topics.length)} topics, ${count(status.subscriptions.length)} subscriptions, ` +
      `${count(backlog)} unacknowledged messages${bad ? `, ${bad} need attention` : ""}`);
    canvas.hidden = !graph.nodes.length;
    empty.hidden = graph.nodes.length > 0;
    if (!empty.hidden && !empty.firstChild) fill(empty, welcome());
  }

  return { title: "Map", element: h("div", null, totals, canvas, empty), onStatus };
}

function welcome() {
  const host = location.host;
  return [
    h("p", null, "The broker has no topics yet. Create one:"),
    h("pre", { class: "code" }, `export PUBSUB_EMULATOR_HOST=${host}
pullstream topics create orders --project demo
pullstream subscriptions create billing --topic orders --project demo
pullstream publish orders hello --project demo`),
  ];
}

/** The nodes and edges of the graph; an edge is [from, to, kind]. */
function build(status, rates) {
  const nodes = new Map();
  const edges = [];
  const add = (node) => nodes.set(node.id, node);
  for (const topic of status.topics) {
    add({
      id: topic.name, kind: "topic", title: shortName(topic.name), link: topicLink(topic.name),
      lines: [`${rate(rates.of(topic.name, "published"))} in`, `${count(topic.published)} published`],
    });
  }
  const ensureTopic = (name) => {
    if (!nodes.has(name)) add({ id: name, kind: "topic", title: shortName(name), link: topicLink(name), lines: ["in another project, or deleted"] });
  };
  for (const each of status.subscriptions) {
    const failing = rates.of(each.name, "nacked") + rates.of(each.name, "expired");
    const readers = each.streams + each.waitingPulls;
    const isUnread = !each.pushEndpoint && !readers && each.backlog > 0 && each.oldestUnackedSeconds > STALLED_SECONDS;
    let problem = "";
    if (failing > 0) problem = `failing ${rate(failing)}`;
    else if (isUnread) problem = "nobody reads";
    else if (each.pushEndpoint && each.oldestUnackedSeconds > STALLED_SECONDS && !rates.of(each.name, "acknowledged")) problem = "endpoint accepts nothing";
    else if (each.oldestUnackedSeconds > 60 && each.backlog > 0) problem = "behind";
    add({
      id: each.name, kind: "subscription", title: shortName(each.name), link: subscriptionLink(each.name), problem,
      lines: [
        each.backlog ? `${count(each.backlog)} unacked, oldest ${duration(each.oldestUnackedSeconds)}` : "no backlog",
        `${rate(rates.of(each.name, "delivered"))} out, ${readers ? `${readers} ${readers > 1 ? "clients" : "client"}` : each.pushEndpoint ? "push" : "no client"}`,
      ],
    });
    if (each.topic.includes("/topics/")) {
      ensureTopic(each.topic);
      edges.push([each.topic, each.name, ""]);
    }
    if (each.pushEndpoint) {
      const id = `push ${each.pushEndpoint}`;
      add({ id, kind: "endpoint", title: each.pushEndpoint.replace(/^https?:\/\//, ""), link: "#/push", problem: problem && problem !== "behind" ? "failing" : "", lines: ["push endpoint"] });
      edges.push([each.name, id, ""]);
    }
    if (each.deadLetterTopic) {
      ensureTopic(each.deadLetterTopic);
      edges.push([each.name, each.deadLetterTopic, "dead"]);
    }
  }
  for (const router of status.routers) {
    const id = router.name;
    add({
      id, kind: "router", title: shortName(id), link: "#/feeds", problem: router.phase === "waiting" ? "no room" : "",
      lines: [`${rate(rates.of(id, "forwarded"))} copied`, router.behind ? `${count(router.behind)} behind` : "caught up"],
    });
    ensureTopic(router.source);
    ensureTopic(router.dest);
    edges.push([router.source, id, ""], [id, router.dest, ""]);
  }
  return { nodes: [...nodes.values()], edges };
}

/** Columns by the longest way from a start; the rows follow those of the nodes before. */
function layout({ nodes, edges }) {
  const column = new Map();
  const before = new Map(nodes.map((node) => [node.id, []]));
  for (const [from, to] of edges) before.get(to).push(from);
  const visiting = new Set();
  const columnOf = (id) => {
    if (column.has(id)) return column.get(id);
    if (visiting.has(id)) return 0; // A cycle: dead letters may lead back.
    visiting.add(id);
    const parents = before.get(id);
    const index = parents.length ? Math.max(...parents.map((parent) => columnOf(parent) + 1)) : 0;
    visiting.delete(id);
    column.set(id, index);
    return index;
  };
  nodes.forEach((node) => columnOf(node.id));
  const row = new Map();
  const columns = [];
  for (const node of nodes) (columns[column.get(node.id)] ||= []).push(node.id);
  const children = new Map(nodes.map((node) => [node.id, []]));
  for (const [from, to] of edges) if (column.get(to) > column.get(from)) children.get(from).push(to);
  // A node takes as many rows as its children need, so that lines cross rarely.
  const free = columns.map(() => 0);
  const place = (id) => {
    if (row.has(id)) return;
    const at = column.get(id);
    const own = children.get(id).filter((child) => !row.has(child));
    const first = own.length ? Math.max(free[at], ...own.map((child) => free[column.get(child)])) : free[at];
    row.set(id, first);
    free[at] = first + 1;
    own.forEach((child) => {
      free[column.get(child)] = Math.max(free[column.get(child)], first);
      place(child);
    });
  };
  columns.flat().forEach(place);
  return { column, row, width: columns.length * COLUMN, height: Math.max(1, ...free) * ROW };
}

function draw(canvas, graph) {
  const positions = layout(graph);
  const x = (id) => positions.column.get(id) * COLUMN;
  const y = (id) => positions.row.get(id) * ROW;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("width", positions.width);
  svg.setAttribute("height", positions.height);
  svg.setAttribute("aria-hidden", "true");
  const titles = new Map(graph.nodes.map((node) => [node.id, node.title]));
  const targets = new Map();
  for (const [from, to, kind] of graph.edges) {
    const [x1, y1, x2, y2] = [x(from) + WIDTH, y(from) + 34, x(to), y(to) + 34];
    const path = document.createElementNS(SVG, "path");
    const bend = x2 > x1 ? 25 : 60;
    path.setAttribute("d", `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 4} ${y2}`);
    path.setAttribute("class", kind ? `edge ${kind}` : "edge");
    svg.append(path);
    const arrow = document.createElementNS(SVG, "path");
    arrow.setAttribute("d", `M${x2 - 7} ${y2 - 4} L${x2 - 1} ${y2} L${x2 - 7} ${y2 + 4}`);
    arrow.setAttribute("class", kind ? `edge ${kind}` : "edge");
    svg.append(arrow);
    if (!targets.has(from)) targets.set(from, []);
    targets.get(from).push((kind ? "dead letters to " : "") + titles.get(to));
  }
  const boxes = new Map();
  const list = h("ul", { class: "nodes" });
  for (const node of graph.nodes) {
    const title = h("a", { href: node.link || null, title: node.id }, node.title);
    const lines = h("div", { class: "lines" });
    const problem = h("strong", { class: "problem" });
    const to = targets.get(node.id);
    const item = h("li", { class: `node ${node.kind}` }, h("span", { class: "kind" }, node.kind), title, lines, problem,
      to ? h("div", { class: "targets" }, `→ ${to.join(", ")}`) : null);
    item.style.left = `${x(node.id)}px`;
    item.style.top = `${y(node.id)}px`;
    list.append(item);
    boxes.set(node.id, { item, lines, problem });
  }
  list.style.height = `${positions.height}px`;
  list.style.width = `${positions.width}px`;
  fill(canvas, svg, list);
  return boxes;
}

function update(box, node) {
  const text = node.lines.join("\n");
  if (box.lines.dataset.text !== text) {
    box.lines.dataset.text = text;
    fill(box.lines, node.lines.map((line) => h("div", { title: line }, line)));
  }
  setText(box.problem, node.problem || "");
  box.item.classList.toggle("bad", Boolean(node.problem));
}
