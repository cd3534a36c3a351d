// TanStack AI's AG-UI endpoint as its own guide writes it, with an OpenAI model whose address is a fake.
import { createServer } from "node:http";
import process from "node:process";
import { chat, chatParamsFromRequest, mergeAgentTools, toolDefinition, toServerSentEventsResponse } from "@tanstack/ai";
import { createOpenaiChatCompletions } from "@tanstack/ai-openai";
import { z } from "zod";

const weather = toolDefinition({
  name: "get_weather",
  description: "Says what the weather is.",
  inputSchema: z.object({ city: z.string() }),
}).server(async ({ city }) => ({ city, degrees: 21 }));
const pay = toolDefinition({
  name: "pay",
  description: "Pays an amount.",
  inputSchema: z.object({ cents: z.number() }),
  needsApproval: true,
}).server(async ({ cents }) => ({ paid: cents }));

const adapter = createOpenaiChatCompletions("gpt-4o", "none", { baseURL: process.env.FAKE_OPENAI, maxRetries: 0 });

async function answer(request) {
  let params;
  try {
    params = await chatParamsFromRequest(request);
  } catch (error) {
    if (error instanceof Response) return error;
    throw error;
  }
  const abortController = new AbortController();
  const { messages, threadId, runId, resume } = params;
  const tools = mergeAgentTools([weather, pay], params.tools);
  const stream = chat({ adapter, messages, tools, threadId, runId, abortController, ...(resume && { resume }) });
  return toServerSentEventsResponse(stream, { abortController });
}

// Node's request as a fetch Request, and back.
const server = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const { method = "GET", headers } = incoming;
  const body = method === "POST" ? Buffer.concat(chunks) : undefined;
  try {
    const response =
      method === "POST"
        ? await answer(new Request(`http://${headers.host}/`, { method, headers, body }))
        : new Response(null, { status: 405 });
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    const reader = response.body?.getReader();
    outgoing.on("close", () => void reader?.cancel().catch(() => {}));
    for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) outgoing.write(read.value);
    outgoing.end();
  } catch (error) {
    console.error(error);
    if (!outgoing.headersSent) outgoing.writeHead(500);
    outgoing.end();
  }
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
