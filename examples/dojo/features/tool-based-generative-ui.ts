import { agent } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";

/** A haiku, which the page's tool `generate_haiku` draws from the arguments. */
export function toolBasedGenerativeUi({ delayMs }: Pace) {
  return agent({
    name: "tool_based_generative_ui",
    description: "A user interface made of tool calls",
    model: scriptedModel(script, { delayMs }),
    instructions: "You write haikus, with generate_haiku.",
  });
}

const haiku = {
  japanese: ["古池や", "蛙飛び込む", "水の音"],
  english: ["The old pond:", "a frog leaps in,", "and the sound of water."],
  image_name: "Bonsai_Tree_Potted_Japanese_Art_Green_Foliage.jpeg",
  gradient: "linear-gradient(135deg, #d9a7c7 0%, #fffcdc 100%)",
};

function script(request: ScriptRequest): ScriptedTurn {
  if (resultsSince(request).has("generate_haiku")) return { text: "Haiku created" };
  if (!request.tools.includes("generate_haiku")) return { text: haiku.english.join(" ") };
  return { calls: [{ name: "generate_haiku", input: haiku }] };
}
