import type { Interrupt, Tool, ToolCall } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { type InputMembers, says, type Turn } from "./conversation.ts";

/** A conversation to lead with the server. */
export interface ProducerInput {
  /** For findings. */
  readonly name: string;
  /** What the user says, turn by turn. Left out: one request with what `input` has. */
  readonly says?: string | readonly string[];
  /** Members of the requests: tools, context, forwardedProps; state and messages are those of the beginning. */
  readonly input?: InputMembers;
  /** What an interrupt is answered with. Default: a value that fits its responseSchema, `{ approved: true }` where it has none. */
  readonly answer?: Json | ((interrupt: Interrupt) => Json);
  /** What a call of a client's tool is answered with. Default: `{"ok":true}`. */
  readonly result?: string | ((call: ToolCall) => string);
}

const GET_LOCATION: Tool = {
  name: "get_location",
  description: "Says where the user is.",
  parameters: { type: "object", properties: {}, additionalProperties: false },
};

/** What the user says first. */
export function firstTurn({ says: said }: ProducerInput): Turn {
  const text = typeof said === "string" ? said : said?.[0];
  return text === undefined ? {} : { messages: [says(text)] };
}

/** What every server is asked. */
export function defaultInputs(prompt: string): readonly ProducerInput[] {
  return [
    { name: "plain turn", says: [prompt, "And now?"] },
    {
      name: "client tool",
      says: ["Where am I? Call the tool get_location to find out."],
      input: { tools: [GET_LOCATION] },
      result: JSON.stringify({ city: "Ghent" }),
    },
    {
      name: "context",
      says: [prompt],
      input: { context: [{ description: "The user's name", value: "Ada" }], forwardedProps: { conformance: true } },
    },
  ];
}
