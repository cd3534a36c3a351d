import { agent, type Transformer, tool } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";

/** `proposal` is what the user has not confirmed yet. */
const Editor = z.object({ document: z.string(), proposal: z.string().optional() });
type Editor = z.infer<typeof Editor>;
const Confirmed = z.object({ accepted: z.boolean() });

/**
 * A document that appears while the model still writes it: the page shows the arguments of `write_document_local` as they come. It is the state's
 * once the user has confirmed, in the page's tool `confirm_changes`.
 */
export function predictiveStateUpdates({ delayMs }: Pace) {
  return agent<Editor>({
    name: "predictive_state_updates",
    description: "A document, shown while it is written",
    model: scriptedModel(script, { delayMs }),
    tools: [writeDocument, closeProposal],
    transformers: [predictState],
    state: { schema: Editor, initial: () => ({ document: "" }) },
  });
}

/** Tells the page which argument to show as which part of the state, before the call that has it. */
const predictState: Transformer = {
  name: "predict-state",
  initial: null,
  step(memo, event) {
    const isWriting = event.type === "TOOL_CALL_START" && event.toolCallName === "write_document_local";
    const value = [{ state_key: "document", tool: "write_document_local", tool_argument: "document" }];
    return { memo, events: isWriting ? [{ type: "CUSTOM", name: "PredictState", value }, event] : [event] };
  },
};

const writeDocument = tool({
  name: "write_document_local",
  description: "Proposes the whole document, in markdown.",
  effect: "read",
  state: Editor,
  input: z.object({ document: z.string() }),
  call: () => ({ proposed: true }),
  reduce(editor, _, { document }) {
    editor.proposal = document;
  },
});

const closeProposal = tool({
  name: "close_proposal",
  description: "Takes over what was proposed, or drops it, as the user has decided.",
  effect: "read",
  state: Editor,
  input: z.object({ accepted: z.boolean() }),
  call: ({ accepted }) => ({ accepted }),
  reduce(editor, _, { accepted }) {
    if (accepted && editor.proposal !== undefined) editor.document = editor.proposal;
    delete editor.proposal;
  },
});

function script(request: ScriptRequest): ScriptedTurn {
  const results = resultsSince(request);
  const closed = Confirmed.safeParse(results.get("close_proposal")).data;
  if (closed) return { text: closed.accepted ? "Ok! The document is changed." : "Ok! The document stays as it was." };
  if (results.has("confirm_changes")) {
    const accepted = Confirmed.safeParse(results.get("confirm_changes")).data?.accepted === true;
    return { calls: [{ name: "close_proposal", input: { accepted } }] };
  }
  if (!request.tools.includes("confirm_changes")) return { text: "This page offers no way to confirm a change." };
  const name = /\bnamed (\w+)/.exec(request.lastUserText)?.[1] ?? "Rex";
  const document = `Once upon a time, there was a dog named ${name}. ${name} was a very good dog.`;
  return {
    calls: [
      { name: "write_document_local", input: { document } },
      { name: "confirm_changes", input: {} },
    ],
  };
}
