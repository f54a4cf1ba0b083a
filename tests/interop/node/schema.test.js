import assert from 'node:assert/strict';
import {test} from 'node:test';
import {Encodings, Schema, SchemaTypes} from '@google-cloud/pubsub';

import {INVALID_ARGUMENT, NOT_FOUND, orders, pubsub, receiving} from './world.js';

const AVRO = JSON.stringify({
  type: 'record',
  name: 'Province',
  fields: [
    {name: 'name', type: 'string'},
    {name: 'population', type: 'long'},
  ],
});
const PROTO = 'syntax = "proto3"; message Province { string name = 1; int64 population = 2; }';
const GOOD = JSON.stringify({name: 'Ontario', population: 14_223_942});

for (const [type, definition] of [
  [SchemaTypes.Avro, AVRO],
  [SchemaTypes.ProtocolBuffer, PROTO],
]) {
  test(`${type}: a topic takes only what its schema describes`, async () => {
    const id = `province-${type.toLowerCase().replace('_', '-')}`;
    const schema = await pubsub.createSchema(id, type, definition);
    const name = await schema.getName();
    const {topic, subscription} = await orders(
      {},
      {schemaSettings: {schema: name, encoding: Encodings.Json}}
    );
    await assert.rejects(topic.publishMessage({data: Buffer.from('{"name": 1}')}), {
      code: INVALID_ARGUMENT,
    });
    await topic.publishMessage({data: Buffer.from(GOOD)});
    await receiving(subscription, async next => {
      const message = await next();
      const described = Schema.metadataFromMessage(message.attributes);
      assert.equal(described.name, name);
      assert.equal(described.encoding, Encodings.Json);
      const {revisionId} = await schema.get();
      assert.equal(described.revision, revisionId);
      message.ack();
    });
  });
}

test('schemas are validated, found, listed and deleted', async () => {
  await pubsub.validateSchema({type: SchemaTypes.Avro, definition: AVRO});
  await assert.rejects(pubsub.validateSchema({type: SchemaTypes.Avro, definition: '{'}), {
    code: INVALID_ARGUMENT,
  });
  const schema = await pubsub.createSchema('listed', SchemaTypes.Avro, AVRO);
  assert.equal((await schema.get()).definition, AVRO);
  await schema.validateMessage(Buffer.from(GOOD), Encodings.Json);
  await assert.rejects(schema.validateMessage(Buffer.from('{}'), Encodings.Json), {
    code: INVALID_ARGUMENT,
  });
  const listed = [];
  for await (const each of pubsub.listSchemas()) {
    listed.push(each.name);
  }
  assert.ok(listed.includes(await schema.getName()));
  await schema.delete();
  await assert.rejects(schema.get(), {code: NOT_FOUND});
});
