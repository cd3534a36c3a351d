import type { Event, EventType } from "@ag-ui/core";

type Literal<E> = E extends { type: infer T extends EventType } ? Omit<E, "type"> & { type: `${T}` } : never;

/** Any AG-UI 1.0 event, with its `type` as a plain string literal. */
export type AGUIEvent = Literal<Event>;

/** Name of an AG-UI event type. */
export type AGUIEventType = AGUIEvent["type"];

/** The event of one type. */
export type AGUIEventOf<T extends AGUIEventType> = Extract<AGUIEvent, { type: T }>;
