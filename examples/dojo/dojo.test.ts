/** The published clients talk to every feature over HTTP, from the first message to the last. */
import { serve } from "perdure";
import { normaliseTranscript } from "perdure/log";
import type { AGUIEvent } from "perdure/protocol";
import { describe, expect, it, onTestFinished } from "vitest";
import { withoutUids } from "../../packages/perdure/test/http/rig.ts";
import { type Version, versions } from "../../packages/perdure/test/http/stock-clients.ts";
import { type Conversation, conversations } from "./conversations.ts";
import { dojo, features } from "./dojo.ts";
import { FrontEnd, type Held } from "./front-end.ts";
import { type Gate, gates } from "./gates.ts";

type Wire = readonly (readonly AGUIEvent[])[];
const played = new Map<string, { readonly wire: Wire; readonly held: Held }>();

/** One conversation of one client, on a server of its own. */
async function play(version: Version, { feature, ...conversation }: Conversation) {
  const known = played.get(`${version} ${feature}`);
  if (known !== undefined) return known;
  const server = await serve(dojo({ delayMs: 0 }), { port: 0 });
  onTestFinished(() => server.close());
  const user = new FrontEnd(version, `${server.url}/${feature}`, conversation);
  await conversation.play(user);
  const seen = { wire: withoutUids(user.wire), held: user.held };
  played.set(`${version} ${feature}`, seen);
  return seen;
}

const gated = (wire: Wire, rows: readonly Gate[] = gates): Wire =>
  wire.map((events) =>
    events.flatMap((event) => {
      const seen = rows.reduce<AGUIEvent | null>((before, row) => (before === null ? null : row.event(before)), event);
      return seen === null ? [] : [seen];
    }),
  );

function isLike(event: AGUIEvent, wanted: object): boolean {
  try {
    expect(event).toMatchObject(wanted);
    return true;
  } catch {
    return false;
  }
}

it("there is a conversation with every feature", () => {
  expect(conversations.map(({ feature }) => feature)).toEqual(features.map(({ name }) => name));
});

describe.each(conversations)("$feature: $about", (conversation) => {
  it.each(versions)("ends for %s with the messages and the state that are written down", async (version) => {
    const { held } = await play(version, conversation);
    const { messages, state } = conversation.ends;
    const message = (m: (typeof messages)[number]) => gates.reduce((before, row) => row.message(before), m);
    const expected = version === "1.0.0" ? messages : messages.map(message);
    expect(normaliseTranscript(held)).toEqual(normaliseTranscript({ messages: expected, state }));
  });

  it("sends what the dojo's page lives on", async () => {
    const events = (await play("1.0.0", conversation)).wire.flat();
    let at = 0;
    for (const wanted of conversation.sends) {
      const found = events.slice(at).findIndex((event) => isLike(event, wanted));
      expect(found, `${JSON.stringify(wanted)} after event ${at}`).toBeGreaterThanOrEqual(0);
      at += found + 1;
    }
  });

  it.each(versions.filter((version) => version !== "1.0.0"))(
    "is for %s what it is for 1.0.0, but for the gates",
    async (version) => {
      const { wire } = await play("1.0.0", conversation);
      expect((await play(version, conversation)).wire).toEqual(gated(wire));
    },
  );
});

it.each(gates)("a gate stands for something that is sent: $name", async (gate) => {
  const wires = await Promise.all(conversations.map((conversation) => play("1.0.0", conversation)));
  expect(wires.some(({ wire }) => JSON.stringify(gated(wire, [gate])) !== JSON.stringify(wire))).toBe(true);
});
