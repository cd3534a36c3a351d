import { AgentCapabilitiesSchema } from "@ag-ui/core/schemas";
import { isJsonObject, type Json } from "../../protocol/json.ts";
import type { Session } from "../conversation.ts";

const GROUPS = Object.keys(AgentCapabilitiesSchema.shape);

/** Reads what the server says of itself at the agent's own address, by GET, and whether that is that a stream can be resumed. */
export async function claimsToResume({ book, target }: Session): Promise<boolean> {
  const { status, bytes } = await target.ask({ method: "GET", headers: { accept: "application/json" } });
  const said = status === 200 ? parse(bytes) : undefined;
  // Anything may be served there: a page, or a document of another kind.
  if (!isJsonObject(said) || !GROUPS.some((group) => isJsonObject(said[group]))) return false;
  const read = AgentCapabilitiesSchema.safeParse(said);
  const [issue] = read.success ? [] : read.error.issues;
  book.check(
    "capabilities.shape",
    { input: "capabilities", event: said },
    issue && `/${issue.path.join("/")}: ${issue.message}`,
  );
  return read.success && read.data.transport?.resumable === true;
}

function parse(bytes: Uint8Array): Json | undefined {
  try {
    return JSON.parse(new TextDecoder().decode(bytes)) as Json;
  } catch {
    return undefined;
  }
}
