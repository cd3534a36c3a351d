/** The media type of a stream of server-sent events. */
export const EVENT_STREAM = "text/event-stream";

/**
 * Whether an Accept header takes server-sent events: the most specific range that matches decides, and `q=0` means no
 * (RFC 9110, section 12.5.1). An absent or empty header takes anything.
 */
export function acceptsEventStream(accept: string | null | undefined): boolean {
  if (!accept?.trim()) return true;
  let best = { specificity: -1, quality: 0 };
  for (const range of accept.split(",")) {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const specificity = ["*/*", "text/*", EVENT_STREAM].indexOf(type);
    if (specificity <= best.specificity) continue;
    const q = parameters.find((parameter) => parameter.startsWith("q="));
    best = { specificity, quality: q === undefined ? 1 : Number(q.slice(2)) };
  }
  return best.quality > 0;
}
