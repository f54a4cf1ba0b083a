import assert from 'node:assert/strict';
import {test} from 'node:test';
import {v1} from '@google-cloud/pubsub';
import {PassThroughClient} from 'google-auth-library';

import {ALREADY_EXISTS, NOT_FOUND, pulled} from './world.js';

const [servicePath, port] = process.env.PUBSUB_EMULATOR_HOST.split(':');
const options = {
  fallback: true,
  protocol: 'http',
  servicePath,
  port: Number(port),
  projectId: 'test-project',
  authClient: new PassThroughClient(),
};
const publisher = new v1.PublisherClient(options);
const subscriber = new v1.SubscriberClient(options);

const topic = 'projects/test-project/topics/by-http';
const subscription = {name: 'projects/test-project/subscriptions/by-http'};

test('over HTTP: messages are published, pulled and acknowledged', async () => {
  await publisher.createTopic({name: topic});
  await subscriber.createSubscription({...subscription, topic});
  const data = Buffer.from([0, 255]);
  const [{messageIds}] = await publisher.publish({
    topic,
    messages: [{data, attributes: {origin: 'test'}}],
  });
  const [{ackId, message}] = await pulled(subscriber, subscription);
  assert.deepEqual([message.messageId], messageIds);
  assert.deepEqual(message.data, data);
  assert.deepEqual(message.attributes, {origin: 'test'});
  await subscriber.acknowledge({subscription: subscription.name, ackIds: [ackId]});
  assert.deepEqual(await pulled(subscriber, subscription), []);
});

test('over HTTP: errors keep their codes', async () => {
  const missing = 'projects/test-project/topics/missing';
  await assert.rejects(publisher.getTopic({topic: missing}), {code: NOT_FOUND});
  await assert.rejects(publisher.createTopic({name: topic}), {code: ALREADY_EXISTS});
});
