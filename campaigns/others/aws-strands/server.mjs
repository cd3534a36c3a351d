// AG-UI's own integration of Strands Agents, over its own Express app, with an OpenAI model whose address is a fake.
import process from "node:process";
import { StrandsAgent } from "@ag-ui/aws-strands";
import { createStrandsApp } from "@ag-ui/aws-strands/server";
import { Agent, tool } from "@strands-agents/sdk";
import { OpenAIModel } from "@strands-agents/sdk/models/openai";
import { z } from "zod";

const weather = tool({
  name: "get_weather",
  description: "Says what the weather is.",
  inputSchema: z.object({ city: z.string() }),
  callback: ({ city }) => ({ city, degrees: 21 }),
});
const pay = tool({
  name: "pay",
  description: "Pays an amount.",
  inputSchema: z.object({ cents: z.number() }),
  callback: ({ cents }, context) => {
    const answer = context.interrupt({ name: "approve", reason: { cents } });
    return { paid: answer?.approved === true ? cents : 0 };
  },
});
const model = new OpenAIModel({
  ...{ api: "chat", modelId: "gpt-4o", apiKey: "none" },
  clientConfig: { baseURL: process.env.FAKE_OPENAI, maxRetries: 0 },
});
const agent = new Agent({ model, tools: [weather, pay], systemPrompt: "You help.", printer: false });
const app = await createStrandsApp(new StrandsAgent({ agent, name: "agent" }), { path: "/" });
const server = app.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
