'use strict';

// Runs the unmodified Node.js client (ali-ons) for the tests.
//
// Every line on stdin is a command {id, do, args}; every line on stdout is either its answer
// {id, ok} or {id, error}, or a message that a consumer got {consumer, message}. One process holds
// any number of producers and consumers by their names. It ends with its stdin.

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const [, , nameSrv] = process.argv;
const running = new Map();

const write = line => process.stdout.write(JSON.stringify(line) + '\n');
const log = (...parts) => console.error(...parts);

const options = name => ({
  nameSrv,
  instanceName: name,
  // The client insists on one, but asks it for name servers only when it is given none.
  httpclient: { request() { throw new Error('no HTTP in this test'); } },
  logger: { debug() {}, info() {}, warn: log, error: log },
  // It ignores what brokers tell it (code 40), so it has to look often.
  pollNameServerInteval: 500,
  rebalanceInterval: 500,
  persistConsumerOffsetInterval: 500,
});

async function start(name, client) {
  client.on('error', error => log(name, error));
  await client.ready();
  running.set(name, client);
}

function build({ topic, tag, body, keys, shardingKey, delayLevel, properties }) {
  const message = new Message(topic, tag, Buffer.from(body, 'base64'));
  Object.assign(message.properties, properties);
  if (keys.length) message.keys = keys;
  if (shardingKey) message.shardingKey = shardingKey;
  if (delayLevel) message.delayTimeLevel = delayLevel;
  return message;
}

function describeSent({ sendStatus, msgId, messageQueue, queueOffset }) {
  return {
    ok: sendStatus === 'SEND_OK',
    msgId,
    offsetMsgId: msgId,
    queueId: Number(messageQueue.queueId),
    queueOffset,
  };
}

function describe(message) {
  // The decoder adds a TAGS of null and, for the separator at the end, a property without a name.
  const properties = Object.entries(message.properties)
    .filter(([ name, value ]) => name !== '' && value !== null);
  return {
    topic: message.topic,
    body: (message.body || Buffer.alloc(0)).toString('base64'),
    properties: Object.fromEntries(properties),
    msgId: message.msgId,
    offsetMsgId: message.msgId,
    queueId: message.queueId,
    queueOffset: message.queueOffset,
    sysFlag: message.sysFlag,
    reconsumeTimes: message.reconsumeTimes,
    storeHost: message.storeHost,
  };
}

const actions = {
  start_producer: ({ name, group }) =>
    start(name, new Producer({ ...options(name), producerGroup: group })),

  // The client has no asynchronous, one-way or batch send; `async` is many sends under way at once.
  async send({ producer, mode, messages }) {
    const send = message => running.get(producer).send(build(message));
    if (mode === 'async') return (await Promise.all(messages.map(send))).map(describeSent);
    const results = [];
    for (const message of messages) results.push(describeSent(await send(message)));
    return results;
  },

  async start_push({ name, group, topic, expression, sql, broadcast, fromLast, failures }) {
    const where = fromLast ? 'CONSUME_FROM_LAST_OFFSET' : 'CONSUME_FROM_FIRST_OFFSET';
    const consumer = new Consumer({
      ...options(name), consumerGroup: group, isBroadcast: broadcast, consumeFromWhere: where,
    });
    const selector = sql ? { expressionType: 'SQL92', subString: expression } : expression;
    consumer.subscribe(topic, selector, async message => {
      write({ consumer: name, message: describe(message) });
      if (message.reconsumeTimes >= failures) return undefined;
      // Both ways to refuse; of a message that came again the client heeds the exception only.
      if (message.reconsumeTimes > 0) throw new Error('refused by the test');
      return Consumer.ACTION_RETRY;
    });
    await start(name, consumer);
  },

  // A consumed message is counted before the event loop turns to the next command.
  lag: async () => 0,

  async stop({ name }) {
    const client = running.get(name);
    running.delete(name);
    await client.close();
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    try {
      write({ id: command.id, ok: await actions[command.do](command.args) });
    } catch (error) {
      write({ id: command.id, error: String(error) });
    }
  }
  process.exit(0);
}

main();
