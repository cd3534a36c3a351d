import { type Json, type Jsonify, toJson } from "../protocol/json.ts";
import { HandleClosedError } from "./errors.ts";
import { type Abandonable, metadataOf, type Scope } from "./handle.ts";
import { Published } from "./published.ts";
import type { ActivityHandle, BlockOptions } from "./types.ts";

export class Activity<C extends object> implements ActivityHandle<C>, Abandonable {
  readonly id: string;
  readonly #content: Published;
  #ended = false;

  constructor(
    private readonly scope: Scope,
    activityType: string,
    content: C,
    options: BlockOptions = {},
  ) {
    this.id = scope.lane.mint("activity");
    const common = { messageId: this.id, activityType };
    const label = `content of activity "${activityType}" (${this.id})`;
    this.#content = new Published(label, toJson(content, label), {
      snapshot: (value) => ({ type: "ACTIVITY_SNAPSHOT", ...common, content: value as { [key: string]: Json } }),
      delta: (patch) => ({ type: "ACTIVITY_DELTA", ...common, patch }),
    });
    const metadata = metadataOf(options, `activity "${activityType}" (${this.id})`);
    this.#content.snapshot((event) => this.#send({ ...event, ...metadata }));
  }

  get content(): Jsonify<C> {
    // It began as a C and went through JSON; what `update` makes of it is typed by the same C.
    return this.#content.shown as Jsonify<C>;
  }

  update(change: (draft: C) => void): void {
    const { closed } = this.scope.outlet;
    if (closed) throw closed;
    if (this.#ended) throw new HandleClosedError(`activity ${this.id}`, "update()");
    change(this.#content.draft as C);
    this.#content.publish(this.#send);
  }

  end(): void {
    this.#ended = true;
  }

  abandon(): void {
    this.end();
  }

  [Symbol.dispose](): void {
    this.end();
  }

  readonly #send = (event: Parameters<Scope["outlet"]["send"]>[1]): void => {
    this.scope.outlet.send(this.scope.lane.path, event);
  };
}
