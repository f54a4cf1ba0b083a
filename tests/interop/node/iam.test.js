import assert from 'node:assert/strict';
import {test} from 'node:test';

import {NOT_FOUND, orders, pubsub} from './world.js';

const BINDINGS = [{role: 'roles/pubsub.editor', members: ['user:somebody@example.com']}];

test('policies are kept for topics and subscriptions', async () => {
  const {topic, subscription} = await orders();
  for (const resource of [topic, subscription]) {
    const [before] = await resource.iam.getPolicy();
    assert.deepEqual(before.bindings, []);
    await resource.iam.setPolicy({bindings: BINDINGS});
    const [policy] = await resource.iam.getPolicy();
    assert.equal(policy.bindings[0].role, BINDINGS[0].role);
    assert.deepEqual(policy.bindings[0].members, BINDINGS[0].members);
  }
  await assert.rejects(pubsub.topic('missing').iam.getPolicy(), {code: NOT_FOUND});
});

test('every permission is granted', async () => {
  const {topic} = await orders();
  const permissions = ['pubsub.topics.publish', 'pubsub.topics.update'];
  const [granted] = await topic.iam.testPermissions(permissions);
  assert.deepEqual(granted, {'pubsub.topics.publish': true, 'pubsub.topics.update': true});
});
