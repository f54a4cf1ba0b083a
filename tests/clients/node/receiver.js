// Google's Node client as a subscriber that tests/clients/run.py controls. receiver.py in the folder
// above describes the task, the commands and the lines.
import {createInterface} from 'node:readline';
import {Duration, PubSub, SubscriptionCloseBehaviors} from '@google-cloud/pubsub';

const task = JSON.parse(process.argv[2]);
process.env.PUBSUB_EMULATOR_HOST = task.endpoint;
const begin = performance.now();
const tell = (...words) =>
  process.stdout.write(`${((performance.now() - begin) / 1000).toFixed(3)} ${words.join(' ')}\n`);

const settle = async (message, number, nack) => {
  const name = nack ? 'nack' : 'ack';
  tell(name, number);
  let outcome;
  try {
    outcome = await (nack ? message.nackWithResponse() : message.ackWithResponse());
  } catch (error) {
    outcome = error.errorCode ?? error.code ?? error.name;
  }
  tell(`${name}-result`, number, String(outcome).replace(/\s/g, '_'));
};

const client = new PubSub({projectId: task.project});
const subscription = client.subscription(task.subscription, {
  // The client waits for messages whose acknowledgement failed, too, until this time has passed.
  closeOptions: {
    behavior: SubscriptionCloseBehaviors.WaitForProcessing,
    timeout: Duration.from({seconds: 10}),
  },
  ...(task.hold && {flowControl: {maxMessages: 2 * task.messages}}),
});
let answer;
const answered = new Promise(resolve => (answer = resolve));
const seen = new Set();

subscription.on('error', error => console.error(error));
subscription.on('message', async message => {
  const number = Number(message.data);
  tell('delivered', number, message.ackId);
  const first = !seen.has(number);
  seen.add(number);
  if (!task.hold) {
    await settle(message, number, first && task.nack_every > 0 && number % task.nack_every === 0);
  } else if (!first && task.answer === 'nack') {
    message.ack();
  } else if (!first) {
    message.nack();
  } else {
    await answered;
    await settle(message, number, task.answer === 'nack');
  }
});
createInterface({input: process.stdin}).on('line', command => {
  if (command === 'answer') answer();
  else subscription.close().then(() => client.close());
});
