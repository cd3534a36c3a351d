/** A whole conversation with each feature, and what its user holds in the end: written down here, not recorded. */
import type { Message } from "perdure";
import { expect } from "vitest";
import type { FrontEnd, Held, Page } from "./front-end.ts";

export interface Conversation extends Page {
  readonly feature: string;
  readonly about: string;
  play(user: FrontEnd): Promise<void>;
  /** What the dojo's page lives on: events that come in this order, with others between them. */
  readonly sends: readonly object[];
  readonly ends: Held;
}

let ids = 0;
const id = (): string => `m${++ids}`;
const user = (content: string): Message => ({ id: id(), role: "user", content });
const says = (content: string): Message => ({ id: id(), role: "assistant", content });
const thinks = (content: string): Message => ({ id: id(), role: "reasoning", content });
const speaks = (subagentRunId: string, content: string): Message => ({
  ...{ id: id(), role: "assistant", content, subagentRunId },
});
const calls = (...made: (readonly [call: string, name: string, args: unknown])[]): Message => ({
  ...{ id: id(), role: "assistant" },
  toolCalls: made.map(([call, name, args]) => ({
    ...{ id: call, type: "function" },
    function: { name, arguments: JSON.stringify(args) },
  })),
});
const result = (toolCallId: string, content: unknown): Message => ({
  ...{ id: id(), role: "tool", toolCallId },
  content: typeof content === "string" ? content : JSON.stringify(content),
});

const background = { background: "linear-gradient(135deg, #667eea 0%, #764ba2 100%)" };
const weatherIn = (city: string) => ({ city, temperature: 20, humidity: 60, wind_speed: 10, conditions: "sunny" });
const steps = (status: string, count: number) =>
  Array.from({ length: count }, (_, i) => ({ description: `Step ${i + 1}`, status }));
const haiku = {
  japanese: ["古池や", "蛙飛び込む", "水の音"],
  english: ["The old pond:", "a frog leaps in,", "and the sound of water."],
  image_name: "Bonsai_Tree_Potted_Japanese_Art_Green_Foliage.jpeg",
  gradient: "linear-gradient(135deg, #d9a7c7 0%, #fffcdc 100%)",
};
const carrots = { icon: "🥕", name: "Carrots", amount: "3 large, grated" };
const chili = { icon: "🌶️", name: "chili powder", amount: "1 tsp" };
const recipe = {
  title: "Make Your Recipe",
  skill_level: "Intermediate",
  cooking_time: "45 min",
  special_preferences: [] as string[],
  ingredients: [carrots],
  instructions: ["Preheat oven to 350°F (175°C)"],
};
const improvement = {
  special_preferences: ["Spicy"],
  ingredients: [chili],
  instructions: ["Season with chili powder."],
};
const story = (name: string) => `Once upon a time, there was a dog named ${name}. ${name} was a very good dog.`;
const meeting = { topic: "an intro call", attendee: "sales" };
const flights = [
  { airline: "KLM", departure: "Amsterdam (AMS)", arrival: "San Francisco (SFO)", duration: "11h 30m", price: "$650" },
  {
    ...{ airline: "United", departure: "Amsterdam (AMS)", arrival: "San Francisco (SFO)" },
    ...{ duration: "12h 15m", price: "$720" },
  },
];
const hotels = [
  { name: "Hotel Zephyr", location: "Fisherman's Wharf", price_per_night: "$280", rating: "4.2 stars" },
  { name: "Hotel Zoe", location: "Union Square", price_per_night: "$320", rating: "4.4 stars" },
];
const article = "An article, from: Three facts about bees.";

export const conversations: readonly Conversation[] = [
  {
    feature: "agentic_chat",
    about: "a tool of the page, one of the server, its context, and text",
    tools: ["change_background"],
    context: [{ description: "userName", value: "Bob" }],
    async play(page) {
      await page.says("Hi");
      await page.says("tool");
      await page.gives("change_background", "done");
      await page.says("What is the weather in Berlin?");
      await page.says("What is my name?");
      await page.says("Count");
    },
    sends: [
      { type: "TOOL_CALL_START", toolCallName: "change_background" },
      { type: "TOOL_CALL_ARGS", delta: JSON.stringify(background) },
      { type: "TOOL_CALL_END" },
      { type: "RUN_FINISHED", outcome: { type: "success", pendingToolCallIds: [expect.any(String)] } },
      { type: "RUN_STARTED" },
      { type: "TEXT_MESSAGE_CONTENT", delta: "background changed ✓" },
    ],
    ends: {
      messages: [
        user("Hi"),
        says("Hello! How can I help?"),
        user("tool"),
        calls(["c1", "change_background", background]),
        result("c1", "done"),
        says("background changed ✓"),
        user("What is the weather in Berlin?"),
        calls(["c2", "get_weather", { location: "Berlin" }]),
        result("c2", weatherIn("Berlin")),
        says("It is 20 degrees and sunny in Berlin."),
        user("What is my name?"),
        says("Your name is Bob."),
        user("Count"),
        says("counting down: 10  9  8  7  6  5  4  3  2  1  ✓"),
      ],
      state: {},
    },
  },
  {
    feature: "backend_tool_rendering",
    about: "the result of a tool of the server",
    play: (page) => page.says("How is the weather in San Francisco?"),
    sends: [
      { type: "TOOL_CALL_START", toolCallName: "get_weather" },
      { type: "TOOL_CALL_END" },
      { type: "TOOL_CALL_RESULT", content: JSON.stringify(weatherIn("San Francisco")) },
      { type: "TEXT_MESSAGE_START", role: "assistant" },
    ],
    ends: {
      messages: [
        user("How is the weather in San Francisco?"),
        calls(["c1", "get_weather", { location: "San Francisco" }]),
        result("c1", weatherIn("San Francisco")),
        says("Retrieved weather information!"),
      ],
      state: {},
    },
  },
  {
    feature: "human_in_the_loop",
    about: "a plan that is confirmed, and one that is not",
    tools: ["generate_task_steps"],
    async play(page) {
      await page.says("Please plan a trip to mars in 5 steps.");
      await page.gives("generate_task_steps", { accepted: true, steps: steps("enabled", 3) });
      await page.says("Please plan a pasta dish in 2 steps.");
      await page.gives("generate_task_steps", { accepted: false });
    },
    sends: [
      { type: "TOOL_CALL_START", toolCallName: "generate_task_steps" },
      { type: "TOOL_CALL_END" },
      { type: "RUN_FINISHED", outcome: { type: "success", pendingToolCallIds: [expect.any(String)] } },
      { type: "TEXT_MESSAGE_CONTENT", delta: "Ok! I'm working on it." },
      { type: "RUN_FINISHED", outcome: { type: "success" } },
    ],
    ends: {
      messages: [
        user("Please plan a trip to mars in 5 steps."),
        calls(["c1", "generate_task_steps", { steps: steps("enabled", 5) }]),
        result("c1", { accepted: true, steps: steps("enabled", 3) }),
        says("Ok! I'm working on it."),
        user("Please plan a pasta dish in 2 steps."),
        calls(["c2", "generate_task_steps", { steps: steps("enabled", 2) }]),
        result("c2", { accepted: false }),
        says("Ok! I leave it."),
      ],
      state: {},
    },
  },
  {
    feature: "agentic_generative_ui",
    about: "steps in the state, done one after the other",
    play: (page) => page.says("Bake a cake in 3 steps"),
    sends: [
      { type: "STATE_SNAPSHOT", snapshot: { steps: [] } },
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/steps", value: steps("pending", 3) }] },
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/steps/0/status", value: "completed" }] },
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/steps/1/status", value: "completed" }] },
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/steps/2/status", value: "completed" }] },
      { type: "TEXT_MESSAGE_START" },
    ],
    ends: {
      messages: [
        user("Bake a cake in 3 steps"),
        calls(["c1", "run_task", { steps: ["Step 1", "Step 2", "Step 3"] }]),
        result("c1", { completed: 3 }),
        says("All steps are done."),
      ],
      state: { steps: steps("completed", 3) },
    },
  },
  {
    feature: "tool_based_generative_ui",
    about: "a call that the page draws; its result comes with the user's next message, since the page asks for no text",
    tools: ["generate_haiku"],
    async play(page) {
      await page.says("A haiku, please");
      await page.gives("generate_haiku", "Haiku generated!", { followUp: false });
      await page.says("Another one");
      await page.gives("generate_haiku", "Haiku generated!");
    },
    sends: [
      { type: "TOOL_CALL_START", toolCallName: "generate_haiku" },
      { type: "TOOL_CALL_ARGS", delta: JSON.stringify(haiku) },
      { type: "RUN_FINISHED", outcome: { type: "success", pendingToolCallIds: [expect.any(String)] } },
    ],
    ends: {
      messages: [
        user("A haiku, please"),
        calls(["c1", "generate_haiku", haiku]),
        result("c1", "Haiku generated!"),
        user("Another one"),
        calls(["c2", "generate_haiku", haiku]),
        result("c2", "Haiku generated!"),
        says("Haiku created"),
      ],
      state: {},
    },
  },
  {
    feature: "shared_state",
    about: "a recipe that the user edits, and the agent, and the user again",
    state: { recipe },
    async play(page) {
      await page.says("Improve it");
      page.edits({ recipe: { ...recipe, title: "Hot cake", special_preferences: ["Vegan"] } });
      await page.says("Improve it again");
    },
    sends: [
      {
        type: "STATE_DELTA",
        delta: expect.arrayContaining([{ op: "add", path: "/recipe/ingredients/1", value: chili }]),
      },
      { type: "RUN_FINISHED" },
      { type: "STATE_DELTA" },
      { type: "RUN_FINISHED" },
    ],
    ends: {
      messages: [
        user("Improve it"),
        calls(["c1", "improve_recipe", improvement]),
        result("c1", { added: 1 }),
        says("I have made it spicy."),
        user("Improve it again"),
        calls(["c2", "improve_recipe", improvement]),
        result("c2", { added: 1 }),
        says("I have made it spicy."),
      ],
      state: {
        recipe: {
          ...recipe,
          title: "Hot cake",
          special_preferences: ["Vegan", "Spicy"],
          ingredients: [carrots, chili],
          instructions: [...recipe.instructions, ...improvement.instructions],
        },
      },
    },
  },
  {
    feature: "predictive_state_updates",
    about: "a document that is confirmed, and a change of it that is not",
    tools: ["confirm_changes"],
    state: { document: "" },
    async play(page) {
      await page.says("A story of a dog named Max");
      await page.gives("confirm_changes", { accepted: true });
      await page.says("Make it a dog named Luna");
      await page.gives("confirm_changes", { accepted: false });
    },
    sends: [
      {
        ...{ type: "CUSTOM", name: "PredictState" },
        value: [{ state_key: "document", tool: "write_document_local", tool_argument: "document" }],
      },
      { type: "TOOL_CALL_START", toolCallName: "write_document_local" },
      { type: "TOOL_CALL_START", toolCallName: "confirm_changes" },
      { type: "RUN_FINISHED", outcome: { type: "success", pendingToolCallIds: [expect.any(String)] } },
      { type: "STATE_SNAPSHOT", snapshot: { document: story("Max") } },
      { type: "RUN_FINISHED", outcome: { type: "success" } },
      { type: "CUSTOM", name: "PredictState" },
    ],
    ends: {
      messages: [
        user("A story of a dog named Max"),
        calls(["c1", "write_document_local", { document: story("Max") }], ["c2", "confirm_changes", {}]),
        result("c1", { proposed: true }),
        result("c2", { accepted: true }),
        calls(["c3", "close_proposal", { accepted: true }]),
        result("c3", { accepted: true }),
        says("Ok! The document is changed."),
        user("Make it a dog named Luna"),
        calls(["c4", "write_document_local", { document: story("Luna") }], ["c5", "confirm_changes", {}]),
        result("c4", { proposed: true }),
        result("c5", { accepted: false }),
        calls(["c6", "close_proposal", { accepted: false }]),
        result("c6", { accepted: false }),
        says("Ok! The document stays as it was."),
      ],
      state: { document: story("Max") },
    },
  },
  {
    feature: "agentic_chat_reasoning",
    about: "thoughts of the model that the page has picked",
    state: { model: "OpenAI" },
    async play(page) {
      await page.says("Why?");
      page.edits({ model: "Gemini" });
      await page.says("And now?");
    },
    sends: [
      { type: "REASONING_START" },
      { type: "REASONING_MESSAGE_CONTENT" },
      { type: "REASONING_END" },
      { type: "TEXT_MESSAGE_START" },
    ],
    ends: {
      messages: [
        user("Why?"),
        thinks("They ask. I look at it from all sides."),
        says("OpenAI has thought about it."),
        user("And now?"),
        thinks("Read it, weigh it, answer it."),
        says("Gemini has thought about it."),
      ],
      state: { model: "Gemini" },
    },
  },
  {
    feature: "interrupt",
    about: "a time that the user picks, one that he does not, and a question that he dismisses",
    async play(page) {
      await page.says("Book an intro call with the sales team");
      await page.answers({ chosen_time: "2030-01-01T10:00:00.000Z", chosen_label: "Tue, 10 AM" });
      await page.says("Book another one with sales");
      await page.answers({ cancelled: true });
      await page.says("And one more with sales");
      await page.dismisses();
    },
    sends: [
      { type: "TOOL_CALL_START", toolCallName: "schedule_meeting" },
      {
        type: "RUN_FINISHED",
        outcome: { type: "interrupt", interrupts: [{ reason: "input_required", metadata: { reason: meeting } }] },
      },
      { type: "TOOL_CALL_RESULT", content: JSON.stringify({ booked: "Tue, 10 AM" }) },
    ],
    ends: {
      messages: [
        user("Book an intro call with the sales team"),
        calls(["c1", "schedule_meeting", meeting]),
        result("c1", { booked: "Tue, 10 AM" }),
        says("It is booked for Tue, 10 AM."),
        user("Book another one with sales"),
        calls(["c2", "schedule_meeting", meeting]),
        result("c2", { booked: null }),
        says("No meeting, then."),
        user("And one more with sales"),
        calls(["c3", "schedule_meeting", meeting]),
        result("c3", { error: { code: "CANCELLED_BY_USER", message: "cancelled by user" } }),
        says("No meeting, then."),
      ],
      state: {},
    },
  },
  {
    feature: "subgraphs",
    about: "specialists, and what the user picks of theirs",
    async play(page) {
      await page.says("Plan a trip");
      await page.answers(JSON.stringify(flights[1]));
      await page.answers(JSON.stringify(hotels[1]));
    },
    sends: [
      { type: "SUBAGENT_STARTED", name: "flights" },
      { type: "SUBAGENT_FINISHED" },
      {
        type: "RUN_FINISHED",
        outcome: {
          type: "interrupt",
          interrupts: [
            {
              message: "Which one do you take?",
              metadata: { agent: "flights", options: flights, recommendation: flights[0] },
            },
          ],
        },
      },
      { type: "SUBAGENT_STARTED", name: "hotels" },
      { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [{ metadata: { agent: "hotels" } }] } },
      { type: "SUBAGENT_STARTED", name: "experiences" },
      { type: "RUN_FINISHED", outcome: { type: "success" } },
    ],
    ends: {
      messages: [
        user("Plan a trip"),
        speaks("flights", "I found 2 options."),
        speaks("hotels", "I found 2 options."),
        speaks("experiences", "I found something to do."),
        says("You fly with United and stay at Hotel Zoe."),
      ],
      state: {
        itinerary: { flight: flights[1], hotel: hotels[1] },
        ...{ flights, hotels, planning_step: "done", active_agent: "supervisor" },
        experiences: [
          { name: "Pier 39", description: "Sea lions and shops", location: "Fisherman's Wharf", type: "activity" },
          {
            ...{ name: "Tartine Bakery", description: "Bread and pastries" },
            ...{ location: "Mission District", type: "restaurant" },
          },
        ],
      },
    },
  },
  {
    feature: "subagents",
    about: "a supervisor whose tools are subagents",
    play: (page) => page.says("bees"),
    sends: ["researcher", "writer", "critic"].flatMap((name) => [
      { type: "SUBAGENT_STARTED", name },
      { type: "SUBAGENT_FINISHED" },
      { type: "TOOL_CALL_RESULT" },
    ]),
    ends: {
      messages: [
        user("bees"),
        calls(["c1", "research_topic", { input: "bees" }]),
        result("c1", "Three facts about bees."),
        speaks("researcher", "Three facts about bees."),
        calls(["c2", "write_prose", { input: "Three facts about bees." }]),
        result("c2", article),
        speaks("writer", article),
        calls(["c3", "critique_draft", { input: article }]),
        result("c3", "Well done, but too short."),
        speaks("critic", "Well done, but too short."),
        says("The article is done."),
      ],
      state: {},
    },
  },
];
