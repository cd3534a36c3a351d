import { agent, tool } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";

const Ingredient = z.object({ icon: z.string(), name: z.string(), amount: z.string() });
const Kitchen = z.object({
  recipe: z.object({
    title: z.string().default(""),
    skill_level: z.string(),
    cooking_time: z.string(),
    special_preferences: z.array(z.string()),
    ingredients: z.array(Ingredient),
    instructions: z.array(z.string()),
  }),
});
type Kitchen = z.infer<typeof Kitchen>;

/** A recipe that the user edits on the page, and the agent in its turn: each sees what the other did. */
export function sharedState({ delayMs }: Pace) {
  const improveRecipe = tool({
    name: "improve_recipe",
    description: "Adds to the recipe; what is there stays.",
    effect: "read",
    state: Kitchen,
    input: z.object({
      special_preferences: z.array(z.string()),
      ingredients: z.array(Ingredient),
      instructions: z.array(z.string()),
    }),
    call: ({ ingredients }) => ({ added: ingredients.length }),
    reduce({ recipe }, _, { special_preferences, ingredients, instructions }) {
      recipe.special_preferences.push(...special_preferences);
      recipe.ingredients.push(...ingredients);
      recipe.instructions.push(...instructions);
    },
  });
  return agent<Kitchen>({
    name: "shared_state",
    description: "A recipe that a person and an agent write together",
    model: scriptedModel(script, { delayMs }),
    tools: [improveRecipe],
    state: { schema: Kitchen, initial: emptyKitchen },
  });
}

function emptyKitchen(): Kitchen {
  return {
    recipe: {
      title: "Make Your Recipe",
      skill_level: "Intermediate",
      cooking_time: "45 min",
      special_preferences: [],
      ingredients: [],
      instructions: [],
    },
  };
}

function script(request: ScriptRequest): ScriptedTurn {
  if (resultsSince(request).has("improve_recipe")) return { text: "I have made it spicy." };
  const input = {
    special_preferences: ["Spicy"],
    ingredients: [{ icon: "🌶️", name: "chili powder", amount: "1 tsp" }],
    instructions: ["Season with chili powder."],
  };
  return { calls: [{ name: "improve_recipe", input }] };
}
