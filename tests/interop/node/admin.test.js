import assert from 'node:assert/strict';
import {test} from 'node:test';

import {ALREADY_EXISTS, INVALID_ARGUMENT, NOT_FOUND, orders, pubsub} from './world.js';

test('topics are made, changed, listed and deleted', async () => {
  const [topic] = await pubsub.createTopic('parcels');
  assert.equal(topic.name, 'projects/test-project/topics/parcels');
  await topic.setMetadata({labels: {team: 'blue'}});
  const [metadata] = await topic.getMetadata();
  assert.deepEqual(metadata.labels, {team: 'blue'});

  const [topics] = await pubsub.getTopics();
  assert.ok(topics.some(each => each.name === topic.name));
  await topic.delete();
  assert.deepEqual(await topic.exists(), [false]);
});

test('lists come in pages', async () => {
  const {topic} = await orders();
  for (let i = 0; i < 4; i++) {
    await topic.createSubscription(`page-${i}`);
  }
  const [first, rest] = await topic.getSubscriptions({pageSize: 2, autoPaginate: false});
  assert.equal(first.length, 2);
  assert.ok(rest.pageToken);
  const [second, , {nextPageToken}] = await topic.getSubscriptions(rest);
  assert.equal(second.length, 2);
  const [last] = await topic.getSubscriptions({...rest, pageToken: nextPageToken});
  const names = [...first, ...second, ...last].map(each => each.name);
  assert.equal(new Set(names).size, 5);
});

test('a subscription has the defaults of the real service', async () => {
  const {subscription, topic} = await orders();
  const [metadata] = await subscription.getMetadata();
  assert.equal(metadata.topic, topic.name);
  assert.equal(metadata.ackDeadlineSeconds, 10);
  assert.equal(metadata.messageRetentionDuration.seconds, '604800');
  assert.equal(metadata.expirationPolicy.ttl.seconds, '2678400');
  assert.equal(metadata.state, 'ACTIVE');
});

test('a subscription can be changed', async () => {
  const {subscription} = await orders();
  await subscription.setMetadata({
    ackDeadlineSeconds: 60,
    labels: {team: 'blue'},
    messageRetentionDuration: 3600,
    retryPolicy: {minimumBackoff: {seconds: 1}, maximumBackoff: {seconds: 60}},
  });
  const [metadata] = await subscription.getMetadata();
  assert.equal(metadata.ackDeadlineSeconds, 60);
  assert.deepEqual(metadata.labels, {team: 'blue'});
  assert.equal(metadata.messageRetentionDuration.seconds, '3600');
  assert.equal(metadata.retryPolicy.minimumBackoff.seconds, '1');
});

test('a subscription outlives its topic', async () => {
  const {topic, subscription} = await orders();
  await topic.delete();
  const [metadata] = await subscription.getMetadata();
  assert.equal(metadata.topic, '_deleted-topic_');
});

test('a detached subscription leaves its topic', async () => {
  const {topic, subscription} = await orders();
  await pubsub.detachSubscription(subscription.name);
  assert.deepEqual(await subscription.detached(), [true]);
  const [left] = await topic.getSubscriptions();
  assert.deepEqual(left, []);
});

test('errors keep their codes and texts', async () => {
  const {topic} = await orders();
  await assert.rejects(pubsub.topic('missing').getMetadata(), {
    code: NOT_FOUND,
    details: 'Resource not found (resource=missing).',
  });
  await assert.rejects(pubsub.createTopic(topic.name), {code: ALREADY_EXISTS});
  await assert.rejects(pubsub.createTopic('goog-is-reserved'), {
    code: INVALID_ARGUMENT,
    details: /Invalid resource name given/,
  });
  await assert.rejects(topic.createSubscription('hasty', {ackDeadlineSeconds: 5}), {
    code: INVALID_ARGUMENT,
    details: /The ack deadline must be between 10 and 600 seconds/,
  });
});
