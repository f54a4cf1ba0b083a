import assert from 'node:assert/strict';
import {test} from 'node:test';

import {INVALID_ARGUMENT, NOT_FOUND, orders, pubsub, receiving} from './world.js';

test('what is published arrives with its id, attributes and time', async () => {
  const {topic, subscription} = await orders();
  const id = await topic.publishMessage({data: Buffer.from('data'), attributes: {origin: 'test'}});
  await receiving(subscription, async next => {
    const message = await next();
    assert.equal(message.id, id);
    assert.equal(message.data.toString(), 'data');
    assert.deepEqual(message.attributes, {origin: 'test'});
    assert.ok(Math.abs(Date.now() - message.publishTime.getTime()) < 60_000);
    assert.equal(await message.ackWithResponse(), 'SUCCESS');
  });
});

test('batches keep every message', async () => {
  const {topic, subscription} = await orders();
  topic.setPublishOptions({batching: {maxMessages: 100, maxMilliseconds: 10}});
  const expected = Array.from({length: 1000}, (_, i) => String(i));
  const ids = await Promise.all(
    expected.map(each => topic.publishMessage({data: Buffer.from(each)}))
  );
  assert.equal(new Set(ids).size, 1000);
  await receiving(subscription, async next => {
    const got = [];
    while (got.length < expected.length) {
      const message = await next();
      message.ack();
      got.push(message.data.toString());
    }
    assert.deepEqual(got.sort(), expected.sort());
  });
});

test('a publisher under flow control gets all of it through', async () => {
  const {topic, subscription} = await orders();
  topic.setPublishOptions({flowControlOptions: {maxOutstandingMessages: 5}});
  const flow = topic.flowControlled();
  for (let i = 0; i < 50; i++) {
    await flow.publish({data: Buffer.from(String(i))});
  }
  assert.equal((await flow.all()).length, 50);
  await receiving(subscription, async next => {
    for (let i = 0; i < 50; i++) {
      (await next()).ack();
    }
  });
});

test('a message of several megabytes arrives', async () => {
  const {topic, subscription} = await orders();
  await topic.publishMessage({data: Buffer.alloc(9_000_000, 'x')});
  await receiving(subscription, async next => {
    const message = await next();
    assert.equal(message.length, 9_000_000);
    message.ack();
  });
});

test('a publish that cannot be is refused at once', async () => {
  const {topic} = await orders();
  const data = Buffer.from('data');
  await assert.rejects(pubsub.topic('missing').publishMessage({data}), {code: NOT_FOUND});
  await assert.rejects(topic.publishMessage({data, attributes: {google: 'reserved'}}), {
    code: INVALID_ARGUMENT,
  });
});
