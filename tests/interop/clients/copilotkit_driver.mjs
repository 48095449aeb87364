// Leads a conversation through CopilotKit's runtime, as a page of CopilotKit would, and writes what
// happens as JSON lines to stdout: the events of each run. Nothing of it needs CopilotKit's cloud.
//
// The script is JSON on stdin: {"url": of the run endpoint, "thread": id, "say": text, "payload": the answer}

import { text } from 'node:stream/consumers';
import process from 'node:process';
import { CopilotRuntime, createCopilotEndpoint } from '@copilotkit/runtime/v2';
import { HttpAgent } from 'ag-ui-client-0';

const script = JSON.parse(await text(process.stdin));
const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url: script.url }) } });
const endpoint = createCopilotEndpoint({ runtime, basePath: '/api' });
const messages = [{ id: 'm1', role: 'user', content: script.say }];

async function run(runId, more = {}) {
  const body = { threadId: script.thread, runId, messages, state: {}, tools: [], context: [], forwardedProps: {}, ...more };
  const request = new Request('http://localhost/api/agent/default/run', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
    body: JSON.stringify(body),
  });
  const lines = (await (await endpoint.fetch(request)).text()).split('\n');
  const events = lines.filter((line) => line.startsWith('data: ')).map((line) => JSON.parse(line.slice(6)));
  process.stdout.write(JSON.stringify(events) + '\n');
  return events;
}

const asked = (await run('r1')).at(-1);
const resume = asked.outcome.interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: script.payload }));
await run('r2', { resume });
process.exit(0); // the runtime leaves timers behind
