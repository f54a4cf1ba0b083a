// Shared by the suites: a client of the broker, unique names, and the received messages.

import {once} from 'node:events';
import {after} from 'node:test';
import {PubSub} from '@google-cloud/pubsub';

// Longer than any step on a slow machine. A hang becomes a failure.
export const TIMEOUT = 20_000;

export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const ALREADY_EXISTS = 6;

// The client finds the broker by PUBSUB_EMULATOR_HOST.
export const pubsub = new PubSub({projectId: 'test-project'});
after(() => pubsub.close());

let made = 0;

/** Create a topic and a subscription that no other test uses. */
export async function orders(subscriptionOptions = {}, topicOptions = {}) {
  const number = ++made;
  const name = `projects/test-project/topics/orders-${number}`;
  const [topic] = await pubsub.createTopic({name, ...topicOptions});
  const [subscription] = await topic.createSubscription(`billing-${number}`, subscriptionOptions);
  return {topic, subscription};
}

/** Call `use(next)`, where `await next()` is the subscription's next message. */
export async function receiving(subscription, use) {
  const arrived = [];
  subscription.on('message', message => {
    arrived.push(message);
    subscription.emit('arrived');
  });
  const next = async () => {
    if (arrived.length === 0) {
      // This throws an error of the stream.
      await once(subscription, 'arrived', {signal: AbortSignal.timeout(TIMEOUT)});
    }
    return arrived.shift();
  };
  try {
    await use(next);
  } finally {
    await subscription.close();
  }
}

/** Return the available messages of the subscription, without waiting for more. */
export async function pulled(client, subscription, maxMessages = 100) {
  const request = {subscription: subscription.name, maxMessages, returnImmediately: true};
  const [response] = await client.pull(request);
  return response.receivedMessages;
}
