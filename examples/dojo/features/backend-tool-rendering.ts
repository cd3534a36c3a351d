import { agent } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";
import { getWeather, placeIn } from "../weather.ts";

/** A tool of the server, whose result the page draws. */
export function backendToolRendering({ delayMs }: Pace) {
  return agent({
    name: "backend_tool_rendering",
    description: "Server tools, drawn by the page",
    model: scriptedModel(script, { delayMs }),
    tools: [getWeather],
  });
}

function script(request: ScriptRequest): ScriptedTurn {
  if (resultsSince(request).has("get_weather")) return { text: "Retrieved weather information!" };
  const location = placeIn(request.lastUserText) ?? "San Francisco";
  return { calls: [{ name: "get_weather", input: { location } }] };
}
