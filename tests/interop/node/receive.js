// Receives messages with @google-cloud/pubsub, and prints each as a line of JSON:
//
//     node receive.js PROJECT SUBSCRIPTION COUNT
import {PubSub} from '@google-cloud/pubsub';

const [project, name, count] = process.argv.slice(2);
const pubsub = new PubSub({projectId: project});
const subscription = pubsub.subscription(name);
let received = 0;

subscription.on('message', (message) => {
  const {id, orderingKey, attributes} = message;
  console.log(JSON.stringify({id, orderingKey, attributes, data: message.data.toString()}));
  message.ack();
  received += 1;
  if (received === Number(count)) {
    subscription.close().then(() => pubsub.close());
  }
});
