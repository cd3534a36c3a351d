import { agent, suspend, tool } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";

const Meeting = z.object({ topic: z.string(), attendee: z.string() });
const Picked = z.union([
  z.object({ chosen_time: z.string(), chosen_label: z.string() }),
  z.object({ cancelled: z.literal(true) }),
]);
const Scheduled = z.object({ booked: z.string().nullable() });

/** A meeting whose time the user picks in the middle of the call that books it. */
export function interrupt({ delayMs }: Pace) {
  const calendar = new Map<string, { topic: string; at: string }>();
  const scheduleMeeting = tool({
    name: "schedule_meeting",
    description: "Books a meeting at a time that the user picks.",
    effect: "idempotent",
    input: Meeting,
    output: Scheduled,
    answer: Picked,
    // The dojo's page looks for what it shows under `reason`.
    call: (meeting) =>
      suspend({ message: `When do you want to talk about ${meeting.topic}?`, metadata: { reason: meeting } }),
    resume(picked, { topic }, { idempotencyKey }) {
      if ("cancelled" in picked) return { booked: null };
      calendar.set(idempotencyKey, { topic, at: picked.chosen_time });
      return { booked: picked.chosen_label };
    },
  });
  return agent({
    name: "interrupt",
    description: "A call that asks the user for the time",
    model: scriptedModel(script, { delayMs }),
    tools: [scheduleMeeting],
  });
}

function script(request: ScriptRequest): ScriptedTurn {
  const results = resultsSince(request);
  if (results.has("schedule_meeting")) {
    const booked = Scheduled.safeParse(results.get("schedule_meeting")).data?.booked ?? null;
    return { text: booked === null ? "No meeting, then." : `It is booked for ${booked}.` };
  }
  const attendee = /\bwith (?:the )?(\w+)/.exec(request.lastUserText)?.[1] ?? "sales";
  return { calls: [{ name: "schedule_meeting", input: { topic: "an intro call", attendee } }] };
}
