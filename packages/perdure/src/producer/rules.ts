/**
 * What is asked of an AG-UI server, rule by rule. The ids are stable: lists of them stand in people's scripts. A rule is an `error` where the
 * specification says MUST, or where a published client dies or shows something false; the rest, advice among it, is a `warning`.
 *
 * Deliberately no rules, since nobody can see them from outside, or only by waiting: that a model is not asked while a call of the history has no
 * result, that RAW replaces no standard event, that an interrupt expires, that comments keep an idle connection open. And none that a message precedes
 * its calls: clients make it.
 */

export type Severity = "error" | "warning";

export interface RuleText {
  readonly title: string;
  /** Where it comes from: sections of the specification, issues of servers that broke it. */
  readonly sources: readonly string[];
  readonly severity: Severity;
}

const SPEC = "https://docs.ag-ui.com/spec/1.0/";
const GITHUB = "https://github.com/";

const spec = (page: string): string => `${SPEC}${page}`;
const concept = (page: string): string => `https://docs.ag-ui.com/concepts/${page}`;
/** Of ag-ui-protocol/ag-ui, unless another repository is named. */
const issue = (number: number, repository = "ag-ui-protocol/ag-ui"): string =>
  `${GITHUB}${repository}/issues/${number}`;

const error = (title: string, ...sources: string[]): RuleText => ({ title, sources, severity: "error" });
const warning = (title: string, ...sources: string[]): RuleText => ({ title, sources, severity: "warning" });

const SSE = spec("basic/transports/http-sse");
const PROTOBUF = spec("basic/transports/http-protobuf");
const LIFECYCLE = spec("events/lifecycle");
const STREAMING = spec("basic/patterns/streaming");
const SNAPSHOTS = spec("basic/patterns/snapshots");
const TOOLS = spec("events/tool-calls");
const FRONTEND_TOOLS = spec("events/tool-calls#frontend-tools");
const INPUT = spec("basic/run-input");
const VERSIONING = spec("basic/versioning");
const PROCESSING = spec("basic/processing");
const SUBAGENTS = spec("events/subagents");
const STATE = spec("events/state");
const RESUME = spec("basic/patterns/interrupt-resume");

export const RULES = {
  "http.status": error("A legal request is answered with 200 and a stream", SSE),
  "http.content-type": error(
    "The answer's type is text/event-stream, or exactly application/vnd.ag-ui.event+proto",
    ...[SSE, PROTOBUF],
  ),
  "http.negotiation": error("Protobuf goes to nobody who does not accept it", PROTOBUF),
  "http.bytes": error("The bytes are what the content type says", PROTOBUF, issue(2094)),
  "http.cache": warning("Cache-Control keeps caches and proxies off: no-cache or no-store, and no-transform", SSE),
  "http.buffering": warning(
    "X-Accel-Buffering: no, so that proxies pass each event on at once",
    "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
  ),
  "http.serves-on": error(
    "A connection that is cut, at any point, costs nobody else",
    issue(20307, "mastra-ai/mastra"),
  ),

  "sse.line-ends": error("Lines end with LF alone", SSE),
  "sse.frames": error("Each frame's data is exactly one event, as a JSON object", SSE),
  "sse.sentinel": error("No [DONE], and no empty data: only events are data", SSE),
  "sse.frame-size": error("No frame is over 10 MB", SSE),
  "sse.utf8": error("The bytes are UTF-8", SSE),
  "sse.last-frame": warning("The last frame, too, ends with a blank line", SSE),
  "sse.closes": error("The body ends, in order, after the last terminal event", SSE, issue(2510)),
  "protobuf.frames": error("Frames are whole: four bytes of length, then one message of at most 10 MB", PROTOBUF),

  "event.type": error("Every event is of a type that the protocol describes", PROCESSING),
  "event.members": warning("Events have the members that the protocol describes; clients strip others", VERSIONING),
  "event.nulls": error(
    "What is optional and has no value is absent, not null",
    ...[VERSIONING, issue(2637, "microsoft/agent-framework")],
  ),
  "event.shape": error("Every value is one that the schema accepts", PROCESSING),
  "event.raw": warning(
    "No RAW, no rawEvent: what the model's provider sent is many times the bytes, and has the prompts",
    issue(2600),
  ),
  "event.usage": error(
    "Token usage: parts are within their totals, total = input + output, one entry per model",
    LIFECYCLE,
  ),

  "run.first": error("The first event is RUN_STARTED or RUN_ERROR", LIFECYCLE),
  "run.ending": error("Every run that starts reaches RUN_FINISHED or RUN_ERROR", LIFECYCLE, issue(2300), issue(2416)),
  "run.one-at-a-time": error("A run ends before the next one starts", LIFECYCLE),
  "run.after-finished": error("After RUN_FINISHED only RUN_STARTED, or a late RUN_ERROR", LIFECYCLE),
  "run.after-error": error("After RUN_ERROR only RUN_STARTED", LIFECYCLE, issue(1892)),
  "run.closed": error("Before RUN_FINISHED everything is closed", LIFECYCLE, issue(8244, "microsoft/agent-framework")),
  "run.echo": error(
    "The requested run has the request's threadId and runId",
    INPUT,
    issue(608, "neuron-core/neuron-ai"),
  ),
  "run.boundary": error("RUN_FINISHED has the threadId and runId of its RUN_STARTED", INPUT),
  "run.ids": error("A stream has no run id twice", LIFECYCLE),
  "run.version": error("RUN_STARTED states the server's own protocolVersion", VERSIONING),
  "run.cancelled": error(
    "A run that was stopped ends as cancelled, or with RUN_ERROR; never as success",
    LIFECYCLE,
    issue(2327),
  ),
  "run.error-once": warning("An error is told by RUN_ERROR alone, not also as a message", issue(2145)),

  "input.empty-messages": warning("A request without messages is answered with a stream", INPUT),
  "input.newer-version": error("A request of a newer minor version is served", VERSIONING),
  "input.no-version": error("A request without a version is served", VERSIONING),
  "input.unknown-members": error("Members that are not known are stripped, and the request served", INPUT, PROCESSING),
  "input.absent-lists": error("Absent tools, context and state are as empty ones", INPUT),
  "input.parts": error("A content part that cannot be used is skipped; the run does not fail of it", INPUT),
  "input.dangling-call": error("A call without a result in the history is met with a stream, or a 4xx", FRONTEND_TOOLS),
  "input.not-json": error("A body that is not JSON is refused with a 4xx, before any event", INPUT, SSE),
  "input.malformed": error("A malformed known member is refused with a 4xx, before any event", INPUT, SSE),
  "input.content-type": warning(
    "A body that is not application/json is refused: any web page may post text/plain",
    SSE,
  ),
  "input.tolerance": error(
    "Nulls, snake_case and deep JSON are served or refused with a 4xx; nothing breaks of them",
    PROCESSING,
  ),
  "input.serves-on": error("Malformed input costs nobody else: the next request is served", INPUT),

  "text.order": error("Text: START, then CONTENT, then END, by id", STREAMING),
  "reasoning.order": error("Reasoning: START, then CONTENT, then END, by id, spans and messages alike", STREAMING),
  "tools.order": error("Tool calls: START, then ARGS, then END, by id, and only then a result", STREAMING, issue(1275)),
  "chunks.order": error("A first chunk has its id and name; later ones do not contradict it", STREAMING),
  "chunks.forms": error("One item comes as chunks or as START, CONTENT and END, not both", STREAMING, issue(161)),
  "steps.order": error("A step is begun once, and finished by whoever began it", LIFECYCLE),
  "subagents.order": error("A subagent is started once, by a known parent, then finished or failed", SUBAGENTS),
  "subagents.owner": error("Events of one item name one owner; a call belongs to its message's", SUBAGENTS),
  "ids.kind": error("One id names one kind of thing", STREAMING),
  "ids.unique": error("A later turn makes messages of its own: ids of the thread are not used again", spec("basic")),

  "tools.result-call": error("A result answers a call that was made", TOOLS),
  "tools.one-result": error("A call has one result", TOOLS, issue(2330)),
  "tools.result-id": error(
    "A result is a message of its own, with a fresh id",
    TOOLS,
    issue(2908, "agentscope-ai/agentscope-java"),
  ),
  "tools.reopened": error("A call that has its result is not begun again", TOOLS, issue(2330)),
  "tools.arguments": warning("The arguments of a call are JSON when somebody has to act on them", TOOLS),
  "tools.client-result": error(
    "The server gives no result for a call that is the client's",
    FRONTEND_TOOLS,
    issue(1346),
  ),
  "tools.client-success": error(
    "Client tools end a run with success, not with an interrupt",
    ...[FRONTEND_TOOLS, issue(1464, "TanStack/ai")],
  ),
  "tools.pending-exact": error(
    "pendingToolCallIds, where sent, are exactly the run's calls without a result",
    FRONTEND_TOOLS,
  ),
  "tools.pending-listed": warning(
    "A run that leaves calls to the client lists them in pendingToolCallIds",
    FRONTEND_TOOLS,
  ),
  "tools.result-taken": error(
    "A client's results are taken: the thread goes on, and asks for none of those calls again",
    FRONTEND_TOOLS,
  ),

  "state.baseline": error(
    "Before the run's own snapshot a STATE_DELTA applies to the request's state, {} when absent",
    ...[STATE, issue(1255, "soliplex/soliplex")],
  ),
  "state.patch": error(
    "A STATE_DELTA applies, as a whole, to what the client holds",
    ...[SNAPSHOTS, issue(2242), issue(5998, "CopilotKit/CopilotKit")],
  ),
  "state.noise": warning(
    "State is sent when it has changed: no empty delta, no snapshot of the same again",
    issue(2244),
    issue(2600),
  ),
  "activity.first": error("An ACTIVITY_DELTA has its ACTIVITY_SNAPSHOT before it", spec("events/activity")),
  "activity.patch": error("An ACTIVITY_DELTA applies, as a whole, to what the client holds", SNAPSHOTS),

  "messages.ids": error(
    "MESSAGES_SNAPSHOT has the ids under which messages were sent and streamed",
    ...[STATE, issue(2707), issue(1659)],
  ),
  "messages.user": error("MESSAGES_SNAPSHOT has the user's messages as they were sent, media too", STATE, issue(2724)),
  "messages.results": error(
    "MESSAGES_SNAPSHOT has the results of the calls that it has",
    STATE,
    issue(6294, "CopilotKit/CopilotKit"),
  ),
  "messages.kept": warning("MESSAGES_SNAPSHOT has all reasoning, or none; all activities, or none", STATE, issue(1262)),

  "interrupts.some": error("The interrupt outcome names at least one interrupt", RESUME),
  "interrupts.ids": error("Interrupts of a run have ids of their own", RESUME),
  "interrupts.last": error(
    "No other run follows an interrupt in its stream: it would clear what is pending",
    issue(2437),
  ),
  "interrupts.snapshots": warning(
    "STATE_SNAPSHOT and MESSAGES_SNAPSHOT go before the interrupt outcome",
    concept("interrupts"),
  ),
  "interrupts.expiry": warning("expiresAt is a date, in ISO 8601, that has not passed", RESUME),

  "resume.served": error("A resume that covers all interrupts is served", RESUME, issue(2178)),
  "resume.result-only": error(
    "A resumed run sends only the result of the call that waited: no START, ARGS and END again",
    concept("interrupts"),
    issue(2014),
    issue(2515),
  ),
  "resume.unknown": warning("A resume entry for an interrupt that is not known is ignored", RESUME),
  "resume.uncovered": error("With an interrupt of a call left open no run ends as success", RESUME),
  "resume.thread": error(
    "An interrupt of one thread is not answered from another",
    RESUME,
    issue(2855, "agentscope-ai/agentscope-java"),
  ),
  "resume.payload": warning("An answer that breaks the interrupt's responseSchema is not taken", concept("interrupts")),
  "resume.replay": warning("The same resume again gives the same conversation, or is refused", concept("interrupts")),

  "rejoin.same-run": error(
    "Where rejoining is offered: the same request again gives the same conversation",
    issue(1852),
    issue(2105),
  ),
  "rejoin.cursor": error(
    "Where frames have an id: Last-Event-ID gives the rest, to the same conversation",
    issue(2714),
  ),
  "capabilities.shape": error("Where capabilities are served, they are AgentCapabilities", spec("basic/capabilities")),
  "expected.seen": error("What this server is expected to show was seen", spec("basic/capabilities")),
} as const satisfies Record<string, RuleText>;

/** Of a rule of the kit. */
export type ProducerRuleId = keyof typeof RULES;

export const RULE_IDS = Object.keys(RULES) as readonly ProducerRuleId[];

export function isRuleId(name: string): name is ProducerRuleId {
  return Object.hasOwn(RULES, name);
}

/** A source as short as a table needs it. */
export function shortSource(source: string): string {
  if (source.startsWith(SPEC)) return `spec ${source.slice(SPEC.length)}`;
  const [, repository, number] = /^https:\/\/github\.com\/[^/]+\/([^/]+)\/issues\/(\d+)$/.exec(source) ?? [];
  if (repository !== undefined) return `${repository}#${number}`;
  return source.replace(/^https:\/\//, "");
}
