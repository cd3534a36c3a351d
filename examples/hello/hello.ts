import { openai } from "@ai-sdk/openai";
import { agent, createRuntime, serve, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";

const weather = tool({
  name: "weather",
  description: "What the weather is like in a city.",
  effect: "read",
  input: z.object({ city: z.string() }),
  call: async ({ city }) => ({ city, celsius: 21 }),
});
// Without a key a script takes the model's place.
const script = [{ calls: [{ name: "weather", input: { city: "Oslo" } }] }, { text: "It is 21 °C in Oslo." }];
const model = process.env.OPENAI_API_KEY ? openai("gpt-5") : scriptedModel(({ turn }) => script[turn % 2] ?? {});
const hello = agent({ name: "hello", model, tools: [weather] });
const runtime = createRuntime({ agents: [hello], store: sqlite(process.env.HELLO_DB ?? "hello.db") });
const server = await serve(runtime, { port: Number(process.env.PORT ?? 8787), drainOn: ["SIGINT", "SIGTERM"] });
console.log(`${server.url}/agents/hello`);
