import assert from 'node:assert/strict';
import {test} from 'node:test';
import {v1} from '@google-cloud/pubsub';

import {NOT_FOUND, orders, pubsub, pulled} from './world.js';

const low = new v1.SubscriberClient(await pubsub.getClientConfig());

/** Publish these one after the other, so that their order is known. */
async function publish(topic, ...texts) {
  for (const text of texts) {
    await topic.publishMessage({data: Buffer.from(text)});
  }
}

/** Pull and acknowledge all available messages, and return their texts. */
async function drain(subscription) {
  const got = await pulled(low, subscription);
  if (got.length > 0) {
    const ackIds = got.map(each => each.ackId);
    await low.acknowledge({subscription: subscription.name, ackIds});
  }
  return got.map(each => each.message.data.toString());
}

test('a seek into the future drops the backlog, one into the past brings it back', async () => {
  const {topic, subscription} = await orders({retainAckedMessages: true});
  await publish(topic, 'a', 'b');
  await subscription.seek(new Date(Date.now() + 60_000));
  assert.deepEqual(await drain(subscription), []);
  await subscription.seek(new Date(Date.now() - 60_000));
  assert.deepEqual(await drain(subscription), ['a', 'b']);
  await subscription.seek(new Date(Date.now() - 60_000));
  assert.deepEqual(await drain(subscription), ['a', 'b']);
});

test('a snapshot brings back what was not acknowledged when it was made', async () => {
  const {topic, subscription} = await orders();
  await publish(topic, 'a', 'b');
  const [snapshot] = await subscription.createSnapshot('before');
  assert.deepEqual(await drain(subscription), ['a', 'b']);
  await publish(topic, 'c');
  await subscription.seek('before');
  assert.deepEqual(await drain(subscription), ['a', 'b', 'c']);

  const [snapshots] = await pubsub.getSnapshots();
  assert.deepEqual(snapshots.map(each => each.name), [snapshot.name]);
  await snapshot.delete();
  await assert.rejects(subscription.seek('before'), {code: NOT_FOUND});
});
