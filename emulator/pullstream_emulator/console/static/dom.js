// Elements, texts and tables. Nothing here knows the broker.

/**
 * Create an element. Attributes whose name starts with "on" are listeners; `false`, `null` and
 * `undefined` leave an attribute out; children may be nested arrays.
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Set the text of an element only if it changes, so that a selection by the user survives. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// ---- texts -----------------------------------------------------------------------------------

export const shortName = (path) => path.slice(path.lastIndexOf("/") + 1);
export const projectOf = (path) => path.split("/")[1];

export function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

export function rate(perSecond) {
  if (!perSecond) return "0/s";
  return `${perSecond < 10 ? perSecond.toFixed(1) : count(perSecond)}/s`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let unit = -1;
  for (; size >= 1024 && unit < units.length - 1; unit++) size /= 1024;
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 0.001) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** The time of day of an RFC 3339 time, with milliseconds. */
export function clock(time) {
  const date = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  const millis = String(date.getMilliseconds()).padStart(3, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${millis}`;
}

// ---- data ------------------------------------------------------------------------------------

// Most bytes or characters of a message that a page shows at once. A browser needs seconds to lay out
// megabytes of text.
export const SHOWN_AT_ONCE = 64 * 1024;

/** The bytes of a text in base64, or its first ones. */
export function toBytes(base64, most = Infinity) {
  const binary = atob((base64 || "").slice(0, Math.ceil(most / 3) * 4));
  const data = new Uint8Array(Math.min(binary.length, most));
  for (let index = 0; index < data.length; index++) data[index] = binary.charCodeAt(index);
  return data;
}

export function toBase64(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/**
 * The text of bytes in UTF-8 without control characters; null if they are something else. The bytes
 * may be the beginning of longer data, and end within a character.
 */
export function asText(data, isBeginning = false) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: isBeginning });
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

const JSON_TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const JSON_VALUE = /^(?:[{}[\],:]|"[^]*"|true|false|null|-?\d[\d.eE+-]*)$/;

/**
 * JSON text with one member per line; numbers stay as they are written. Null if it is not JSON. Of the
 * beginning of a longer text, the last token may be missing.
 */
export function prettyJson(text, isBeginning = false) {
  const tokens = text.match(JSON_TOKENS) || [];
  if (isBeginning) {
    tokens.pop();
    if (!/^\s*[{[]/.test(text) || !tokens.every((token) => JSON_VALUE.test(token))) return null;
  } else {
    try {
      JSON.parse(text);
    } catch {
      return null;
    }
  }
  let indent = "";
  let shown = "";
  tokens.forEach((token, index) => {
    const isEmpty = /[{[]/.test(tokens[index - 1]) && /[}\]]/.test(token);
    if (/^[}\]]$/.test(token)) {
      indent = indent.slice(2);
      shown += isEmpty ? token : `\n${indent}${token}`;
    } else if (token === ",") {
      shown += `,\n${indent}`;
    } else if (token === ":") {
      shown += ": ";
    } else if (/^[{[]$/.test(token)) {
      indent += "  ";
      shown += /[}\]]/.test(tokens[index + 1]) ? token : `${token}\n${indent}`;
    } else {
      shown += token;
    }
  });
  return shown;
}

export function asHex(data) {
  const lines = [];
  for (let start = 0; start < data.length; start += 16) {
    const part = [...data.slice(start, start + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}

/** One line that shows the beginning of a message's data. */
export function preview(message, length = 120) {
  const data = toBytes(message.data);
  if (!data.length) return "(no data)";
  const text = asText(data) ?? `(binary) ${asHex(data.slice(0, 16)).slice(8, 55).trim()}`;
  const line = text.replace(/\s+/g, " ");
  return line.length > length || message.dataBytes > data.length ? `${line.slice(0, length)} …` : line;
}

// ---- tables ----------------------------------------------------------------------------------

/**
 * A table whose rows are updated in place, so that focus, selection and scrolling survive.
 *
 * Each column has a `label`, and `cell(row)`, which returns a text, an object {text, href, title,
 * tone}, or an element. An element is created once for each row.
 */
export class LiveTable {
  constructor(caption, columns, empty) {
    this.columns = columns;
    this.rows = new Map();
    this.body = h("tbody");
    this.empty = h("p", { class: "empty" }, empty);
    this.element = h(
      "div",
      { class: "table" },
      h(
        "table",
        null,
        h("caption", { class: "hidden" }, caption),
        h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.class }, column.label)))),
        this.body,
      ),
      this.empty,
    );
    this.update([]);
  }

  /** Show these rows, each with a unique `key`. */
  update(rows) {
    const keys = new Set(rows.map((row) => row.key));
    for (const [key, row] of this.rows) {
      if (!keys.has(key)) {
        row.element.remove();
        this.rows.delete(key);
      }
    }
    let before = this.body.firstChild;
    for (const row of rows) {
      let shown = this.rows.get(row.key);
      if (!shown) {
        shown = { element: h("tr"), cells: [] };
        this.rows.set(row.key, shown);
      }
      this.columns.forEach((column, index) => this.show(shown, index, column, row));
      if (shown.element === before) before = before.nextSibling;
      else this.body.insertBefore(shown.element, before);
    }
    this.element.firstChild.hidden = !rows.length;
    this.empty.hidden = rows.length > 0;
  }

  show(shown, index, column, row) {
    let cell = shown.cells[index];
    if (cell?.fixed) return;
    const content = column.cell(row);
    if (!cell) {
      const element = h(index ? "td" : "th", { scope: index ? null : "row", class: column.class, "data-label": column.label });
      cell = shown.cells[index] = { element, shown: null, fixed: content instanceof Node };
      shown.element.append(element);
      if (cell.fixed) element.append(content);
    }
    if (cell.fixed) return;
    const value = typeof content === "object" && content !== null ? content : { text: content };
    const mark = `${value.text}\n${value.href}\n${value.tone}`;
    if (cell.shown === mark) return;
    cell.shown = mark;
    fill(cell.element, value.href ? h("a", { href: value.href, title: value.title }, value.text) : String(value.text ?? ""));
    cell.element.dataset.tone = value.tone || "";
  }
}
