import type { Json } from "../protocol/json.ts";

/** Every answer that is not a stream or a result: a stable code to branch on and a sentence to read. */
export interface ProblemBody {
  readonly error: { readonly code: string; readonly message: string; readonly details?: Json };
}

export function problem(
  status: number,
  code: string,
  message: string,
  options: { readonly details?: Json; readonly headers?: Readonly<Record<string, string>> } = {},
): Response {
  const { details, headers } = options;
  const body: ProblemBody = { error: { code, message, ...(details !== undefined && { details }) } };
  return Response.json(body, { status, headers: { ...headers } });
}
