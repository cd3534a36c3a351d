import { agent } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";
import { getWeather, placeIn, Weather } from "../weather.ts";

/** Chat with a tool of the page, `change_background`, a tool of the server, and the page's context. */
export function agenticChat({ delayMs }: Pace) {
  return agent({
    name: "agentic_chat",
    description: "Chat with frontend tools",
    model: scriptedModel(script, { delayMs }),
    instructions: "You are a helpful assistant.",
    tools: [getWeather],
  });
}

function script(request: ScriptRequest): ScriptedTurn {
  const { lastUserText: said, tools } = request;
  const results = resultsSince(request);
  if (results.has("change_background")) return { text: "background changed ✓" };
  const weather = Weather.safeParse(results.get("get_weather")).data;
  if (weather) return { text: `It is ${weather.temperature} degrees and ${weather.conditions} in ${weather.city}.` };

  if (/\b(tool|background)\b/i.test(said) && tools.includes("change_background")) {
    const background = "linear-gradient(135deg, #667eea 0%, #764ba2 100%)";
    return { calls: [{ name: "change_background", input: { background } }] };
  }
  const place = placeIn(said);
  if (place !== undefined) return { calls: [{ name: "get_weather", input: { location: place } }] };
  if (/\bmy name\b/i.test(said)) return { text: `Your name is ${nameIn(request) ?? "not known to me"}.` };
  if (/^(hi|hello)\b/i.test(said)) return { text: "Hello! How can I help?" };
  return { text: "counting down: 10  9  8  7  6  5  4  3  2  1  ✓" };
}

/** The page says who its user is in its context. */
function nameIn({ messages }: ScriptRequest): string | undefined {
  const [system] = messages;
  return typeof system?.content === "string" ? /name[^:\n]*: *"?(\w+)/i.exec(system.content)?.[1] : undefined;
}
