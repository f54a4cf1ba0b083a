import assert from 'node:assert/strict';
import {once} from 'node:events';
import {createServer} from 'node:http';
import {after, test} from 'node:test';

import {orders, TIMEOUT, receiving} from './world.js';

/** An endpoint that answers each request with 204. `next()` returns the body of the next request. */
async function endpoint() {
  const server = createServer(async (request, response) => {
    const chunks = await request.toArray();
    response.writeHead(204).end();
    server.emit('pushed', JSON.parse(Buffer.concat(chunks)));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  const next = async () => (await once(server, 'pushed', {signal: AbortSignal.timeout(TIMEOUT)}))[0];
  return {url: `http://127.0.0.1:${server.address().port}/push`, next};
}

test('a push subscription is delivered by HTTP', async () => {
  const {url, next} = await endpoint();
  const {topic, subscription} = await orders({pushEndpoint: url});
  const [metadata] = await subscription.getMetadata();
  assert.equal(metadata.pushConfig.pushEndpoint, url);

  const pushed = next();
  const id = await topic.publishMessage({
    data: Buffer.from('data'),
    attributes: {origin: 'test'},
  });
  const body = await pushed;
  assert.equal(body.subscription, subscription.name);
  assert.equal(body.message.messageId, id);
  assert.equal(Buffer.from(body.message.data, 'base64').toString(), 'data');
  assert.deepEqual(body.message.attributes, {origin: 'test'});
});

test('push can be switched on and off', async () => {
  const {url, next} = await endpoint();
  const {topic, subscription} = await orders();
  await subscription.modifyPushConfig({pushEndpoint: url});
  const pushed = next();
  await topic.publishMessage({data: Buffer.from('pushed')});
  assert.equal(Buffer.from((await pushed).message.data, 'base64').toString(), 'pushed');

  await subscription.modifyPushConfig({pushEndpoint: ''});
  await topic.publishMessage({data: Buffer.from('pulled')});
  await receiving(subscription, async nextMessage => {
    const message = await nextMessage();
    assert.equal(message.data.toString(), 'pulled');
    message.ack();
  });
});
