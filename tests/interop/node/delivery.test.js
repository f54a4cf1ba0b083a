import assert from 'node:assert/strict';
import {test} from 'node:test';
import {v1} from '@google-cloud/pubsub';

import {INVALID_ARGUMENT, NOT_FOUND, orders, pubsub, pulled, receiving} from './world.js';

const low = new v1.SubscriberClient(await pubsub.getClientConfig());

test('a nacked message comes again', async () => {
  const {topic, subscription} = await orders();
  const id = await topic.publishMessage({data: Buffer.from('data')});
  await receiving(subscription, async next => {
    (await next()).nack();
    const again = await next();
    assert.equal(again.id, id);
    again.ack();
  });
});

test('no more messages than the flow control allows are out at a time', async () => {
  const {topic, subscription} = await orders();
  subscription.setOptions({
    flowControl: {maxMessages: 3, allowExcessMessages: false},
    streamingOptions: {maxStreams: 1},
  });
  for (let i = 0; i < 12; i++) {
    await topic.publishMessage({data: Buffer.from(String(i))});
  }
  await receiving(subscription, async next => {
    const held = [await next(), await next(), await next()];
    // The broker still has the other nine for other subscribers.
    const others = await pulled(low, subscription);
    assert.equal(others.length, 9);
    held.forEach(message => message.ack());
    await low.acknowledge({
      subscription: subscription.name,
      ackIds: others.map(each => each.ackId),
    });
  });
});

test('keys keep their order', async () => {
  const {topic, subscription} = await orders({enableMessageOrdering: true});
  topic.setPublishOptions({messageOrdering: true});
  const published = [];
  for (let i = 0; i < 50; i++) {
    for (const orderingKey of ['a', 'b']) {
      published.push(topic.publishMessage({data: Buffer.from(String(i)), orderingKey}));
    }
  }
  await Promise.all(published);
  const got = {a: [], b: []};
  await receiving(subscription, async next => {
    for (let i = 0; i < 100; i++) {
      const message = await next();
      got[message.orderingKey].push(Number(message.data));
      message.ack();
    }
  });
  const expected = Array.from({length: 50}, (_, i) => i);
  assert.deepEqual(got, {a: expected, b: expected});
});

test('a key starts again at what was nacked', async () => {
  const {topic, subscription} = await orders({enableMessageOrdering: true});
  topic.setPublishOptions({messageOrdering: true});
  await Promise.all(
    [0, 1, 2, 3].map(i =>
      topic.publishMessage({data: Buffer.from(String(i)), orderingKey: 'a'})
    )
  );
  await receiving(subscription, async next => {
    const first = await next();
    assert.equal(Number(first.data), 0);
    first.nack();
    let message = await next();
    while (Number(message.data) !== 0) {
      message.ack();
      message = await next();
    }
    const again = [];
    while (again.length < 4) {
      again.push(Number(message.data));
      message.ack();
      if (again.length < 4) message = await next();
    }
    assert.deepEqual(again, [0, 1, 2, 3]);
  });
});

test('deleting the subscription ends its stream', async () => {
  const {topic, subscription} = await orders();
  await topic.publishMessage({data: Buffer.from('data')});
  await receiving(subscription, async next => {
    (await next()).ack();
    const failed = assert.rejects(next(), {code: NOT_FOUND});
    // The subscription itself would close its own stream first.
    await low.deleteSubscription({subscription: subscription.name});
    await failed;
  });
});

test('exactly-once: an acknowledgement is confirmed, one of a dead id refused', async () => {
  const {topic, subscription} = await orders({enableExactlyOnceDelivery: true});
  await topic.publishMessage({data: Buffer.from('good')});
  await receiving(subscription, async next => {
    assert.equal(await (await next()).ackWithResponse(), 'SUCCESS');

    await topic.publishMessage({data: Buffer.from('late')});
    const late = await next();
    // Another client has returned the message meanwhile.
    await low.modifyAckDeadline({
      subscription: subscription.name,
      ackIds: [late.ackId],
      ackDeadlineSeconds: 0,
    });
    await assert.rejects(late.ackWithResponse(), {errorCode: 'INVALID'});
  });
});

test('exactly-once: the error names each id that failed', async () => {
  const {topic, subscription} = await orders({enableExactlyOnceDelivery: true});
  await topic.publishMessage({data: Buffer.from('data')});
  const [{ackId}] = await pulled(low, subscription);
  const request = {subscription: subscription.name, ackIds: [ackId]};
  await low.modifyAckDeadline({...request, ackDeadlineSeconds: 0});
  await assert.rejects(low.acknowledge(request), {
    code: INVALID_ARGUMENT,
    reason: 'EXACTLY_ONCE_ACKID_FAILURE',
    errorInfoMetadata: {[ackId]: 'PERMANENT_FAILURE_INVALID_ACK_ID'},
  });
});

test('only what the filter lets pass is delivered', async () => {
  const filter = 'attributes.country = "no" AND NOT hasPrefix(attributes.kind, "test")';
  const {topic, subscription} = await orders({filter});
  const publish = attributes => topic.publishMessage({data: Buffer.from('data'), attributes});
  await publish({country: 'se'});
  await publish({country: 'no', kind: 'testing'});
  const wanted = await publish({country: 'no', kind: 'order'});
  const got = await pulled(low, subscription);
  assert.deepEqual(got.map(each => each.message.messageId), [wanted]);
  await assert.rejects(topic.createSubscription('odd', {filter: 'attributes.a ='}), {
    code: INVALID_ARGUMENT,
  });
});

test('what fails too often goes to the dead-letter topic', async () => {
  const grave = await orders();
  const {topic, subscription} = await orders({
    deadLetterPolicy: {deadLetterTopic: grave.topic.name, maxDeliveryAttempts: 5},
  });
  await topic.publishMessage({data: Buffer.from('poison'), attributes: {origin: 'test'}});
  await receiving(subscription, async next => {
    for (let attempt = 1; attempt <= 5; attempt++) {
      const message = await next();
      assert.equal(message.deliveryAttempt, attempt);
      message.nack();
    }
    await receiving(grave.subscription, async nextDead => {
      const dead = await nextDead();
      assert.equal(dead.data.toString(), 'poison');
      assert.equal(dead.attributes.origin, 'test');
      assert.equal(dead.attributes.CloudPubSubDeadLetterSourceDeliveryCount, '5');
      assert.equal(
        dead.attributes.CloudPubSubDeadLetterSourceSubscription,
        subscription.name.split('/').at(-1)
      );
      assert.equal(
        dead.attributes.CloudPubSubDeadLetterSourceSubscriptionProject,
        'test-project'
      );
      dead.ack();
    });
  });
});
