// The addresses of screens. They are in the fragment, so that a link can be shared and the broker
// never sees it.

import { projectOf, shortName } from "./dom.js";

const part = encodeURIComponent;
const last = (path) => path.slice(path.lastIndexOf("/") + 1);

export const topicLink = (path) => (path === "_deleted-topic_" || !path ? "" : `#/topics/${part(projectOf(path))}/${part(last(path))}`);
export const subscriptionLink = (path) => `#/subscriptions/${part(projectOf(path))}/${part(last(path))}`;
export const schemaLink = (path) => `#/schemas/${part(projectOf(path))}/${part(last(path))}`;
export const messageLink = (topic, id) => (topic ? `#/messages/${part(projectOf(topic))}/${part(last(topic))}/${part(id)}` : "");

/** The link of a topic or a subscription. */
export const resourceLink = (path) => (path.includes("/topics/") ? topicLink(path) : subscriptionLink(path));

/** A table cell that links to a topic. */
export const topicCell = (path) => ({ text: path ? shortName(path) : "", href: topicLink(path), title: path });
export const subscriptionCell = (path) => ({ text: shortName(path), href: subscriptionLink(path), title: path });
export const messageCell = (topic, id) => ({ text: id, href: messageLink(topic, id), title: `message ${id}` });
