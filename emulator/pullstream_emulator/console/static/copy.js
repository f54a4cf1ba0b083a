// Commands and programs that do what the console did, and a test of what happened.

import { hasToken, origin } from "./api.js";
import { asText, projectOf, shortName, SHOWN_AT_ONCE, toBytes } from "./dom.js";

// The same limit as in the broker's rest/message_json.py.
const SHOWN_BYTES = 4096;

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const python = (text) => JSON.stringify(text);

/** A Python literal for the bytes of a message. */
function pythonBytes(data) {
  const text = [...data].map((byte) => {
    if (byte === 34 || byte === 92) return `\\${String.fromCharCode(byte)}`;
    if (byte > 31 && byte < 127) return String.fromCharCode(byte);
    return `\\x${byte.toString(16).padStart(2, "0")}`;
  }).join("");
  return `b"${text}"`;
}

const isLong = (message) => message.data?.length > SHOWN_AT_ONCE;

/** A Python expression for the data of a message. Long data stay in base64. */
function pythonData(message) {
  return isLong(message) ? `b64decode(${python(message.data)})` : pythonBytes(toBytes(message.data));
}

function curl(method, path, body) {
  const lines = [`curl -X ${method} ${shell(`${origin}/${path}`)}`];
  if (hasToken()) lines.push(`-H "Authorization: Bearer $PULLSTREAM_TOKEN"`);
  if (body) lines.push(`-d ${shell(JSON.stringify(body))}`);
  return lines.join(" \\\n    ");
}

const HOST = new URL(origin).host;
const GCLOUD = `CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=${origin}/ CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true \\\n    gcloud`;

/** Publish a message: data in base64, attributes, key. */
export function publishTexts(topic, message, copies = 1) {
  const data = toBytes(message.data);
  const text = asText(data);
  const attributes = message.attributes || {};
  const key = message.orderingKey || "";
  const one = { data: message.data };
  if (Object.keys(attributes).length) one.attributes = attributes;
  if (key) one.orderingKey = key;
  const gcloud = [`${GCLOUD} pubsub topics publish ${shortName(topic)} --project ${projectOf(topic)}`];
  if (text !== null && text) gcloud.push(`--message ${shell(text)}`);
  if (Object.keys(attributes).length) {
    gcloud.push(`--attribute ${shell(Object.entries(attributes).map(([name, value]) => `${name}=${value}`).join(","))}`);
  }
  if (key) gcloud.push(`--ordering-key ${shell(key)}`);
  const given = [];
  if (Object.keys(attributes).length) given.push(`attributes=${JSON.stringify(attributes)}`);
  if (key) given.push(`ordering_key=${python(key)}`);
  const program = () => `${isLong(message) ? "from base64 import b64decode\n\n" : ""}from pullstream import TopicAdminClient

with TopicAdminClient(endpoint=${python(HOST)}) as client:
    message = dict(${[`data=${pythonData(message)}`, ...given].join(", ")})
    message_ids = client.publish(${python(topic)}, [message]${copies > 1 ? ` * ${copies}` : ""})
    print(message_ids)
`;
  const messages = Array(copies > 1 && copies <= 3 ? copies : 1).fill(one);
  return [
    { label: "curl", text: () => curl("POST", `v1/${topic}:publish`, { messages }) },
    { label: "gcloud", text: () => (text === null ? "gcloud cannot publish binary data." : gcloud.join(" \\\n    ")) },
    { label: "Python", text: program },
  ];
}

/** Receive messages of a subscription. */
export function pullTexts(subscription) {
  const name = shortName(subscription);
  const project = projectOf(subscription);
  return [
    { label: "curl", text: () => curl("POST", `v1/${subscription}:pull`, { maxMessages: 10 }) },
    { label: "gcloud", text: () => `${GCLOUD} pubsub subscriptions pull ${name} --project ${project} --limit 10 --auto-ack` },
    { label: "Python", text: () => `from pullstream import SubscriberClient


def callback(message):
    print(message.data)
    message.ack()


with SubscriberClient(endpoint=${python(HOST)}) as client:
    future = client.subscribe(${python(subscription)}, callback)
    future.result()  # until Ctrl-C
` },
    { label: "shell", text: () => `PUBSUB_EMULATOR_HOST=${HOST} pullstream subscribe ${name} --project ${project}` },
  ];
}

/**
 * A test that fails unless a message had this life.
 *
 * It finds the message by its content, because its id may be another one in the next run.
 */
export function assertionTexts(topic, message, events) {
  // Lists of events show the beginning of long data.
  const shown = toBytes(message.data, SHOWN_BYTES);
  const name = shortName(topic).replace(/\W+/g, "_").toLowerCase();
  const steps = events.filter((event) => event.kind !== "deadline-change" && event.kind !== "push");
  const expected = steps.map((event) => `        (${python(event.kind)}, ${python(event.resource)}, ${event.attempt}),`).join("\n");
  const attributes = JSON.stringify(message.attributes || {});
  const key = python(message.orderingKey || "");
  const remote = () => `"""What happened to a message of ${shortName(topic)}. Run it with pytest while the broker runs."""

import json
import os
from base64 import b64decode
from urllib.parse import urlencode
from urllib.request import Request, urlopen

BROKER = os.environ.get("PUBSUB_EMULATOR_HOST", ${python(HOST)})
TOKEN = os.environ.get("PULLSTREAM_TOKEN")


def test_a_message_of_${name}():
    query = urlencode({"topic": ${python(topic)}, "limit": 10_000})
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    request = Request(f"${new URL(origin).protocol}//{BROKER}/v0/events?{query}", headers=headers)
    with urlopen(request) as response:
        events = json.load(response)["events"]
    lives = {}
    for event in events:
        message = event["message"]
        if (
            b64decode(message.get("data", "")) == ${pythonBytes(shown)}
            and message.get("attributes", {}) == ${attributes}
            and message.get("orderingKey", "") == ${key}
            and event["kind"] not in ("deadline-change", "push")
        ):
            step = (event["kind"], event["resource"], event["attempt"])
            lives.setdefault(event["messageId"], []).append(step)
    assert [
${expected}
    ] in lives.values()
`;
  const fixture = () => `"""What happens to a message of ${shortName(topic)}. The fixture comes with pullstream[emulator]."""
${isLong(message) ? "\nfrom base64 import b64decode\n" : ""}

def test_a_message_of_${name}(pubsub_emulator):
    # Run your program here. It finds the broker by PUBSUB_EMULATOR_HOST.
    ...

    (published,) = [
        event
        for event in pubsub_emulator.history.publishes(${python(topic)})
        if event.data == ${pythonData(message)}
    ]
    life = pubsub_emulator.message(published.message_id, ${python(topic)})
    assert [
        (event.kind.value, event.resource, event.attempt)
        for event in life.events
        if event.kind.value not in ("deadline-change", "push")
    ] == [
${expected}
    ]
`;
  return [
    { label: "pytest, this broker", text: remote },
    { label: "pytest, your program", text: fixture },
  ];
}
