// Plays one script with the TypeScript client, and writes what happens as JSON lines to stdout.
//
// The script is JSON on stdin:
//   server        {"url": …} or {"command": …, "args": […]}
//   era           "auto", "legacy", or a revision to pin
//   capabilities  what the client declares (elicitation and sampling)
//   elicit        the user's answers, in the order of the questions
//   sample        the model's replies (texts), likewise
//   together      answer nothing until so many questions are open at the same time
//   maxRounds     of the client, where not its own default
//   thinking      milliseconds until the user or the model replies
//   timeout       milliseconds after which the client gives up, unless there was progress meanwhile
//   calls         tools to call one after the other: {"name": …, "arguments": {…}};
//                 "by": "saga" calls through tools/callSaga, "by": "rounds" makes each round by
//                 hand and sends it to the next of "urls"
//
// The lines: {"connected": version}, {"asked": params}, {"sampled": params}, {"log": params},
// {"progress": params}, {"result": …} or {"error": …} for each call.

import { text } from 'node:stream/consumers';
import process from 'node:process';
import { setTimeout } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { z } from 'zod';

const TIMEOUT = 120_000; // a guard against hanging, not a measure
const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';
const anything = z.looseObject({});

const script = JSON.parse(await text(process.stdin));
const tell = (line) => process.stdout.write(JSON.stringify(line) + '\n');

// -- who answers ---------------------------------------------------------------------------------

// Opens when as many questions are open as the script wants to see together.
const crowd = { open: 0, ...Promise.withResolvers() };

async function reply(kind, params, replies) {
  tell({ [kind]: params });
  crowd.open += 1;
  if (crowd.open >= (script.together ?? 1)) crowd.resolve();
  const next = replies?.shift();
  await crowd.promise;
  if (script.thinking) await setTimeout(script.thinking);
  if (next === undefined) throw new Error(`the script has no answer to ${JSON.stringify(params)}`);
  return next;
}

const elicit = (params) => reply('asked', params, script.elicit);
const sample = async (params) => ({
  role: 'assistant',
  model: 'scripted',
  content: { type: 'text', text: await reply('sampled', params, script.sample) },
});

// -- the connection ------------------------------------------------------------------------------

function transportTo(server) {
  if (server.url) return new StreamableHTTPClientTransport(new URL(server.url));
  return new StdioClientTransport({ ...server, env: process.env, stderr: 'inherit' });
}

// The client forgets a call's progress token before it looks at progress that arrived together with
// the response. So progress is told as it arrives, and not as the client passes it on.
function tellProgress(transport) {
  const deliver = transport.onmessage;
  transport.onmessage = (message, extra) => {
    if (message.method === 'notifications/progress') {
      const { progressToken, ...progress } = message.params;
      tell({ progress });
    }
    deliver(message, extra);
  };
}

async function connect(server) {
  const mode = ['auto', 'legacy'].includes(script.era) ? script.era : { pin: script.era };
  const capabilities = script.capabilities ?? { elicitation: { form: {} }, sampling: {} };
  const rounds = script.maxRounds ? { inputRequired: { maxRounds: script.maxRounds } } : {};
  const client = new Client(
    { name: 'interop', version: '1' },
    { capabilities, versionNegotiation: { mode }, ...rounds },
  );
  if (capabilities.elicitation) {
    client.setRequestHandler('elicitation/create', (request) => elicit(request.params));
  }
  if (capabilities.sampling) {
    client.setRequestHandler('sampling/createMessage', (request) => sample(request.params));
  }
  client.setNotificationHandler('notifications/message', (said) => tell({ log: said.params }));
  const transport = transportTo(server);
  await client.connect(transport);
  tellProgress(transport);
  tell({ connected: client.getNegotiatedProtocolVersion() });
  return client;
}

// -- three ways to call --------------------------------------------------------------------------

const options = {
  timeout: script.timeout ?? TIMEOUT,
  resetTimeoutOnProgress: true,
  onprogress: () => {}, // without it no progress is asked for
};

const parameters = (call) => ({
  name: call.name,
  arguments: call.arguments,
  _meta: { [LOG_LEVEL]: 'debug' },
});

const direct = (client, call) => client.callTool(parameters(call), options);

// One answer to each of the requests in an InputRequiredResult, or in the steps of a saga.
const answer = ({ method, params }) =>
  method === 'sampling/createMessage' ? sample(params) : elicit(params);

async function byRounds(_, call) {
  let result = {};
  for (let round = 0; ; round++) {
    const client = await connect({ url: call.urls[round % call.urls.length] });
    const { inputRequests = {}, requestState } = result;
    const asked = Object.entries(inputRequests);
    const inputResponses = Object.fromEntries(
      await Promise.all(asked.map(async ([key, request]) => [key, await answer(request)])),
    );
    const params = { ...parameters(call), ...(requestState && { inputResponses, requestState }) };
    result = await client.callTool(params, { timeout: TIMEOUT, allowInputRequired: true });
    await client.close();
    if (result.resultType !== 'input_required') return result;
  }
}

const STEPS = { elicitation: 'elicitation/create', sampling: 'sampling/createMessage' };

async function bySaga(client, call) {
  const send = (method, params) => client.request({ method, params }, anything, options);
  const completedSteps = []; // of all turns: each is sent the whole history
  let result = await send('tools/callSaga', parameters(call));
  while (result.state === 'suspended') {
    const completed = await Promise.all(
      result.steps.map(async ({ type, stepId, params }) => {
        try {
          return { stepId, result: await answer({ method: STEPS[type], params }) };
        } catch (error) {
          return { stepId, error: { code: -32603, message: error.message } };
        }
      }),
    );
    completedSteps.push(...completed);
    const { _meta } = parameters(call);
    result = await send('tools/resumeSaga', { sagaToken: result.sagaToken, completedSteps, _meta });
  }
  return result;
}

const WAYS = { direct, rounds: byRounds, saga: bySaga };

// -- the play ------------------------------------------------------------------------------------

const client = await connect(script.server);
for (const call of script.calls) {
  try {
    tell({ result: await WAYS[call.by ?? 'direct'](client, call) });
  } catch (error) {
    tell({ error: { code: error.code, message: error.message, data: error.data } });
  }
}
await client.close();
