/** The media type of a stream of server-sent events. */
export const EVENT_STREAM = "text/event-stream";
/** The media type of a stream of protobuf messages (AG-UI 1.0, HTTP binding). */
export const PROTOBUF = "application/vnd.ag-ui.event+proto";

export type StreamType = typeof EVENT_STREAM | typeof PROTOBUF;

/** The response header that names the run, by its uid, with which a stream begins. */
export const RUN_HEADER = "perdure-run";

/**
 * Which streams an Accept header takes, the best one first (RFC 9110, section 12.5.1): of each type the most specific range that matches
 * decides, `q=0` means no, and the greater quality wins. An absent or empty header takes anything.
 *
 * Protobuf only for whoever names it: a wildcard, which the binding would let admit it, is what `curl` and most HTTP clients send. Of both with
 * one quality server-sent events come first: they carry a cursor.
 */
export function negotiate(accept: string | null | undefined): readonly StreamType[] {
  const ranges = rangesOf(accept);
  const qualities = new Map<StreamType, number>([
    [EVENT_STREAM, qualityOf(ranges, [EVENT_STREAM, "text/*", "*/*"])],
    [PROTOBUF, qualityOf(ranges, [PROTOBUF])],
  ]);
  return [...qualities]
    .filter(([, quality]) => quality > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([type]) => type);
}

interface Range {
  readonly type: string;
  readonly quality: number;
}

function rangesOf(accept: string | null | undefined): readonly Range[] {
  if (!accept?.trim()) return [{ type: "*/*", quality: 1 }];
  return accept.split(",").map((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const q = parameters.find((parameter) => parameter.startsWith("q="));
    const quality = q === undefined ? 1 : Number(q.slice(2));
    return { type, quality };
  });
}

/** The quality of a type by the first of its names, most specific first, that a range has. */
function qualityOf(ranges: readonly Range[], names: readonly string[]): number {
  for (const name of names) {
    const range = ranges.find(({ type }) => type === name);
    if (range !== undefined) return range.quality;
  }
  return 0;
}
