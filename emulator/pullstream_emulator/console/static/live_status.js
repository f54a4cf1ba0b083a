// The status of the broker, brought up to date by the changes of the live stream.

const SECTIONS = ["topics", "subscriptions", "feeds", "routers", "cursors", "schemas"];

const nameOf = (section, each) => (section === "feeds" ? each.topic : each.name);

/** The status after an event "changes". */
export function withChanges(status, changes) {
  const { broker, channels } = changes;
  const newer = { ...status, broker, channels };
  for (const section of SECTIONS) {
    if (changes[section]) newer[section] = merged(section, status[section], changes[section]);
  }
  // An age changes all the time, so the stream does not send it again.
  for (const each of newer.subscriptions) {
    each.oldestUnackedSeconds = each.oldestUnackedAt === null ? 0 : Math.max(broker.time - each.oldestUnackedAt, 0);
  }
  return newer;
}

function merged(section, resources, { changed, removed }) {
  const all = new Map(resources.map((each) => [nameOf(section, each), each]));
  for (const name of removed) all.delete(name);
  const before = all.size;
  for (const each of changed) all.set(nameOf(section, each), each);
  const list = [...all.values()];
  if (list.length === before) return list;
  // A new resource goes to its place in the order of names.
  return list.sort((one, other) => (nameOf(section, one) < nameOf(section, other) ? -1 : 1));
}
