import { describe, expect, test } from "vitest";
import { toModelError } from "../../src/agent/model-error.ts";
import { modelOf } from "./model-of.ts";

const asks = (responseHeaders: unknown, statusCode = 429) =>
  toModelError(modelOf([]), Object.assign(new Error(), { statusCode, responseHeaders }), "request").retryAfter;

describe("what a provider says about when to ask again", () => {
  test.each([
    [{ "retry-after": "20" }, { ms: 20_000 }],
    [{ "Retry-After": " 0.25 " }, { ms: 250 }],
    [{ "retry-after": "0" }, { ms: 0 }],
    [{ "retry-after-ms": "1500.5", "retry-after": "20" }, { ms: 1_501 }],
    [{ "retry-after-ms": "soon", "retry-after": "20" }, { ms: 20_000 }],
    [{ "retry-after": "Mon, 30 Nov 2026 08:00:00 GMT" }, { at: Date.UTC(2026, 10, 30, 8) }],
    [{ "retry-after": "soon" }, undefined],
    [{ "retry-after": "" }, undefined],
    [{ "retry-after": "Infinity" }, undefined],
    [{}, undefined],
    [undefined, undefined],
    ["retry-after: 20", undefined],
  ])("%j is %j", (headers, after) => {
    expect(asks(headers)).toEqual(after);
    expect(asks(headers, 503)).toEqual(after);
  });

  test("is of no interest where it refuses for good", () => {
    expect(asks({ "retry-after": "20" }, 401)).toBe(undefined);
  });
});
