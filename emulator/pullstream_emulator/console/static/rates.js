// Rates per second, from the counters of successive statuses.

// Seconds over which a rate is the mean.
const SPAN = 5;

class Rates {
  constructor() {
    this.statuses = [];
  }

  add(status) {
    const counters = new Map();
    for (const each of [...status.topics, ...status.subscriptions]) counters.set(each.name, each);
    for (const router of status.routers) counters.set(router.name, router);
    const time = performance.now() / 1000;
    const isOther = this.statuses.at(-1)?.started !== status.broker.started;
    if (isOther) this.statuses = [];
    this.statuses.push({ time, counters, started: status.broker.started });
    while (this.statuses.length > 2 && this.statuses[1].time < time - SPAN) this.statuses.shift();
  }

  /** Change per second of a counter such as "delivered" of a topic, subscription or router. */
  of(name, counter) {
    const first = this.statuses[0];
    const last = this.statuses.at(-1);
    if (!first || last.time - first.time < 0.5) return 0;
    const before = first.counters.get(name)?.[counter] ?? 0;
    const now = last.counters.get(name)?.[counter] ?? 0;
    return Math.max(now - before, 0) / (last.time - first.time);
  }
}

export const rates = new Rates();
