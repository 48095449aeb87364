// Leads a conversation with AG-UI's own client, and writes what happens as JSON lines to stdout.
//
// The script is JSON on stdin:
//   client   "@ag-ui/client", or the name under which an older release of it is installed
//   url      of the run endpoint
//   thread   the id of the thread
//   tools    those that run here, in the front end
//   context  of each run
//   turns    one after the other: {"say": text}, or {"resume": status, "payload"?, "metadata"?},
//            which answers every interrupt that is open, or {"result": text} of each call of a tool
//            that has none
//
// The lines, for each turn: {"types": […], "messages": […], "interrupts": […]} or {"error": text}.

import { text } from 'node:stream/consumers';
import process from 'node:process';

const script = JSON.parse(await text(process.stdin));
const { HttpAgent } = await import(script.client);
const agent = new HttpAgent({ url: script.url, threadId: script.thread });
let interrupts = [];

for (const turn of script.turns) {
  const types = [];
  const onEvent = ({ event }) => {
    types.push(event.type);
    if (event.type === 'RUN_FINISHED') interrupts = event.outcome?.interrupts ?? [];
    if (event.type === 'RUN_ERROR') types.push(event.message);
  };
  let parameters = { tools: script.tools, context: script.context };
  if (turn.say !== undefined) {
    agent.addMessage({ id: crypto.randomUUID(), role: 'user', content: turn.say });
  } else if (turn.result !== undefined) {
    const returned = new Set(agent.messages.map(({ toolCallId }) => toolCallId));
    const open = agent.messages.flatMap(({ toolCalls }) => toolCalls ?? []).filter(({ id }) => !returned.has(id));
    for (const { id } of open) {
      agent.addMessage({ id: crypto.randomUUID(), role: 'tool', toolCallId: id, content: turn.result });
    }
  } else {
    const { resume: status, payload, metadata } = turn;
    const answers = interrupts.map(({ id }) => ({ interruptId: id, status, payload, metadata }));
    parameters = { ...parameters, resume: turn.interruptId ? [{ ...answers[0], ...turn, status }] : answers };
  }
  try {
    await agent.runAgent(parameters, { onEvent });
    const messages = agent.messages.map(({ role, content, toolCalls }) => ({ role, content, toolCalls }));
    process.stdout.write(JSON.stringify({ types, messages, interrupts }) + '\n');
  } catch (error) {
    process.stdout.write(JSON.stringify({ types, error: String(error.message ?? error) }) + '\n');
  }
}
