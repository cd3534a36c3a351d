import { tool } from "perdure";
import { z } from "zod";

export const Weather = z.object({
  city: z.string(),
  temperature: z.number(),
  humidity: z.number(),
  wind_speed: z.number(),
  conditions: z.string(),
});

/** The same weather everywhere, in the shape that the dojo draws. */
export const getWeather = tool({
  name: "get_weather",
  description: "The weather at a place now.",
  effect: "read",
  input: z.object({ location: z.string().min(1) }),
  output: Weather,
  call: ({ location }) => ({ city: location, temperature: 20, humidity: 60, wind_speed: 10, conditions: "sunny" }),
});

/** The place that a question about the weather names. */
export function placeIn(text: string): string | undefined {
  return /\bweather\b.*\b(?:in|at|for) ([^?.!]+)/i.exec(text)?.[1]?.trim();
}
