// What every suite here needs: a client of the broker, names of its own, and messages as they come.

import {once} from 'node:events';
import {after} from 'node:test';
import {PubSub} from '@google-cloud/pubsub';

// Longer than anything here takes on a slow machine; it turns a hang into a failure.
export const PATIENCE = 20_000;

export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const ALREADY_EXISTS = 6;

// It finds the broker by PUBSUB_EMULATOR_HOST.
export const pubsub = new PubSub({projectId: 'test-project'});
after(() => pubsub.close());

let made = 0;

/** A topic and a subscription to it, which no other test uses. */
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
      // An error of the stream is thrown from here.
      await once(subscription, 'arrived', {signal: AbortSignal.timeout(PATIENCE)});
    }
    return arrived.shift();
  };
  try {
    await use(next);
  } finally {
    await subscription.close();
  }
}

/** What is left in the subscription for one more reader, without waiting for more of it. */
export async function pulled(client, subscription, maxMessages = 100) {
  const request = {subscription: subscription.name, maxMessages, returnImmediately: true};
  const [response] = await client.pull(request);
  return response.receivedMessages;
}
