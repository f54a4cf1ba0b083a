// Tables of events and of messages, which several screens share.

import { clock, LiveTable, preview, shortName } from "./dom.js";
import { messageCell, resourceLink, topicCell } from "./links.js";

export const TONES = { ack: "good", nack: "bad", expiry: "bad", "dead-letter": "bad", return: "warn" };

// Words for what happened, with the number of the delivery attempt where it tells something.
export function describe(event) {
  switch (event.kind) {
    case "publish": return "published";
    case "delivery": return `delivered${event.attempt > 1 ? `, attempt ${event.attempt}` : ""}${event.detail ? ` to ${event.detail}` : ""}`;
    case "ack": return "acknowledged";
    case "nack": return `nacked, attempt ${event.attempt}`;
    case "expiry": return `ack deadline passed, attempt ${event.attempt}`;
    case "return": return "returned without a counted attempt";
    case "deadline-change": return `ack deadline set to ${event.seconds} s`;
    case "dead-letter": return `dead-lettered to ${shortName(event.detail)} after ${event.attempt} attempts`;
    case "push": return `endpoint answered: ${event.detail}`;
  }
  return event.kind;
}

export const TIME = { label: "Time", class: "time", cell: (event) => ({ text: clock(event.time), title: event.time }) };
export const MESSAGE = { label: "Message", cell: (event) => messageCell(event.topic, event.messageId) };
export const DATA = { label: "Data", class: "data", cell: (event) => preview(event.message) };
export const KEY = { label: "Key", cell: (event) => event.message.orderingKey || "" };
export const ATTRIBUTES = { label: "Attributes", class: "data", cell: (event) => attributesText(event.message) };
export const WHAT = { label: "Event", cell: (event) => ({ text: describe(event), tone: TONES[event.kind] }) };
export const WHERE = {
  label: "Topic or subscription",
  cell: (event) => ({ text: shortName(event.resource), href: resourceLink(event.resource), title: event.resource }),
};
export const TOPIC = { label: "Topic", cell: (event) => topicCell(event.topic) };

// Attributes that the broker sets itself.
export const OF_BROKER = /^(googclient_schema|CloudPubSubDeadLetter)/;

/** The publisher's attributes, on one line. */
export function attributesText(message) {
  return Object.entries(message.attributes || {}).filter(([name]) => !OF_BROKER.test(name))
    .map(([name, value]) => `${name}=${value}`).join(", ");
}

// Most rows of a live table: more are no help, and cost time at each update.
const MAX_ROWS = 100;

/** A table of the newest events, the newest first, with pause and a count of the skipped ones. */
export class EventTable {
  constructor(caption, columns, empty) {
    this.table = new LiveTable(caption, columns, empty);
    this.events = [];
    this.skipped = 0;
    this.isPaused = false;
    this.pending = [];
    this.onChange = () => {};
  }

  get element() {
    return this.table.element;
  }

  set(events) {
    this.events = [...events].reverse().slice(0, MAX_ROWS);
    this.draw();
  }

  add({ events, skipped }) {
    this.skipped += skipped;
    if (this.isPaused) {
      this.pending = [...this.pending, ...events].slice(-MAX_ROWS);
    } else {
      const known = new Set(this.events.map((event) => event.number));
      const newer = events.filter((event) => !known.has(event.number)).reverse();
      this.events = [...newer, ...this.events].slice(0, MAX_ROWS);
      this.draw();
    }
    this.onChange();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    if (!isPaused) {
      const pending = this.pending;
      this.pending = [];
      this.add({ events: pending, skipped: 0 });
    }
    this.onChange();
  }

  draw() {
    this.table.update(this.events.map((event) => ({ ...event, key: event.number })));
  }
}
