import { agent, type RunContext } from "perdure";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { words } from "../words.ts";

const Flight = z.object({
  airline: z.string(),
  departure: z.string(),
  arrival: z.string(),
  duration: z.string(),
  price: z.string(),
});
const Hotel = z.object({ name: z.string(), location: z.string(), price_per_night: z.string(), rating: z.string() });
/** The dojo's page answers with the JSON text of an option. */
const Picked = z.string().transform((text, ctx): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    ctx.addIssue("it is not the JSON of an option");
    return z.NEVER;
  }
});
const Experience = z.object({ name: z.string(), description: z.string(), location: z.string(), type: z.string() });
const Trip = z.object({
  itinerary: z.object({ flight: Flight.optional(), hotel: Hotel.optional() }),
  flights: z.array(Flight),
  hotels: z.array(Hotel),
  experiences: z.array(Experience),
  planning_step: z.string(),
  active_agent: z.enum(["supervisor", "flights", "hotels", "experiences"]),
});
type Trip = z.infer<typeof Trip>;

const flights: [z.infer<typeof Flight>, z.infer<typeof Flight>] = [
  { airline: "KLM", departure: "Amsterdam (AMS)", arrival: "San Francisco (SFO)", duration: "11h 30m", price: "$650" },
  {
    airline: "United",
    departure: "Amsterdam (AMS)",
    arrival: "San Francisco (SFO)",
    duration: "12h 15m",
    price: "$720",
  },
];
const hotels: [z.infer<typeof Hotel>, z.infer<typeof Hotel>] = [
  { name: "Hotel Zephyr", location: "Fisherman's Wharf", price_per_night: "$280", rating: "4.2 stars" },
  { name: "Hotel Zoe", location: "Union Square", price_per_night: "$320", rating: "4.4 stars" },
];
const experiences = [
  { name: "Pier 39", description: "Sea lions and shops", location: "Fisherman's Wharf", type: "activity" },
  { name: "Tartine Bakery", description: "Bread and pastries", location: "Mission District", type: "restaurant" },
];

/** A trip that specialists plan one after the other; the user picks a flight and a hotel in between. The page reads from the state who is at work. */
export function subgraphs({ delayMs }: Pace) {
  return agent<Trip>({
    name: "subgraphs",
    description: "Specialists that plan a trip",
    state: { schema: Trip, initial: noTrip },
    async run(ctx) {
      const flight = await picked(ctx, "flights", Flight, flights, delayMs);
      ctx.updateState(({ itinerary }) => {
        itinerary.flight = flight;
      });
      const hotel = await picked(ctx, "hotels", Hotel, hotels, delayMs);
      ctx.updateState(({ itinerary }) => {
        itinerary.hotel = hotel;
      });
      await atWork(ctx, "experiences", "I found something to do.", delayMs);
      ctx.updateState((trip) => {
        trip.experiences = experiences;
        trip.planning_step = "done";
        trip.active_agent = "supervisor";
      });
      ctx.say(`You fly with ${flight.airline} and stay at ${hotel.name}.`);
    },
  });
}

function noTrip(): Trip {
  return {
    itinerary: {},
    flights: [],
    hotels: [],
    experiences: [],
    planning_step: "start",
    active_agent: "supervisor",
  };
}

/** What the user picks of a specialist's options. Until he has, the leg ends here; if he picks nothing, it is the first. */
async function picked<T extends z.infer<typeof Flight> | z.infer<typeof Hotel>>(
  ctx: RunContext<Trip>,
  specialist: "flights" | "hotels",
  schema: z.ZodType<T>,
  options: readonly [T, ...T[]],
  delayMs: number,
): Promise<T> {
  const [recommendation] = options;
  const answer = ctx.resumeFor(specialist, Picked);
  if (answer !== undefined) return answer.payload === undefined ? recommendation : schema.parse(answer.payload);
  await atWork(ctx, specialist, `I found ${options.length} options.`, delayMs);
  ctx.updateState((trip) => void Object.assign(trip, { [specialist]: options }));
  return await ctx.interrupt({
    id: specialist,
    message: "Which one do you take?",
    schema: Picked,
    metadata: { agent: specialist, options, recommendation },
  });
}

async function atWork(ctx: RunContext<Trip>, specialist: Trip["active_agent"], says: string, delayMs: number) {
  ctx.updateState((trip) => {
    trip.active_agent = specialist;
    trip.planning_step = specialist;
  });
  const text = words(says, delayMs, ctx.signal);
  await ctx.subagent({ name: specialist, description: `Looks for ${specialist}` }, (agent) =>
    agent.message((message) => message.pipe(text)),
  );
}
