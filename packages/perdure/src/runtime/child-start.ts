/** How a child begins: under which name, and with which entries. */
import type { NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { PROTOCOL_VERSION, type UserMessage } from "../protocol/events.ts";
import { jsonEqual, toJson } from "../protocol/json.ts";
import type { Path, Principal, Uid } from "../protocol/words.ts";
import type { Agent } from "./agent-definition.ts";
import type { Allotment } from "./allotment.ts";
import { definitionHash } from "./definition-hash.ts";
import { sha256 } from "./hash.ts";

/**
 * The uid of the child that a step begins: the same whoever works it out, so that a parent which dies finds its child again. In the form of a
 * uuid of version 8, which is one whose bits are its maker's own affair.
 */
export function childUid(parent: Uid, path: Path): Uid {
  const hex = sha256(`child\n${parent}\n${path}`);
  const variant = ((Number.parseInt(hex.slice(16, 17), 16) & 0x3) | 0x8).toString(16);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}` as Uid;
}

const OF_CHILD = /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:/;

/** Whether an id may be one that a child makes. Anybody who knows the parent can work out what its children will be called. */
export function isOfChild(id: string): boolean {
  return OF_CHILD.test(id);
}

/** The children that a run has begun. */
export function childUids({ run, steps }: RunState): readonly Uid[] {
  return [...steps.values()].flatMap(({ started: { step, path } }) =>
    step === "child" ? childUid(run.uid, path) : [],
  );
}

/**
 * The first entries of a child. It acts for the one for whom its parent does, and begins with a state and a conversation of its own.
 *
 * @param asked - its first user message
 * @param allotted - what it may use of its parent's budget
 */
export function firstEntriesOfChild(
  parent: RunState,
  path: Path,
  {
    agent,
    asked,
    allotted,
  }: { readonly agent: Agent; readonly asked: UserMessage["content"]; readonly allotted?: Allotment | undefined },
): readonly NewEntry[] {
  const uid = childUid(parent.run.uid, path);
  const root = "" as Path;
  const state =
    agent.state === undefined ? {} : toJson(agent.state.initial(), `initial state of agent "${agent.name}"`);
  const principal: Principal = parent.request?.principal ?? { ...parent.run.owner, scopes: [] };
  return [
    {
      ...{ kind: "run.started", uid, agent: agent.name, definition: definitionHash(agent), owner: parent.run.owner },
      ...{ thread: null, turn: 1, labels: parent.run.labels, parent: { uid: parent.run.uid, path } },
      ...(allotted !== undefined && { allotted }),
    },
    {
      ...{ kind: "leg.started", leg: 1, runId: `${uid}.1` },
      request: {
        ...{ runId: `${uid}.1`, messages: [{ id: `${uid}:asked`, role: "user", content: asked }] },
        ...{
          results: [],
          resume: [],
          tools: [],
          context: parent.request?.context ?? [],
          state: {},
          forwardedProps: null,
        },
        ...{ principal, protocolVersion: PROTOCOL_VERSION },
      },
    },
    ...(jsonEqual(state, {})
      ? []
      : ([{ kind: "state", path: root, patch: [{ op: "replace", path: "", value: state }] }] as const)),
    { kind: "frame", path: root, ref: { of: "RUN_STARTED", leg: 1 } },
    ...(jsonEqual(state, {}) ? [] : ([{ kind: "frame", path: root, ref: { of: "STATE_SNAPSHOT" } }] as const)),
  ];
}
