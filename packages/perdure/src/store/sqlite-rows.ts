import type { Interrupt } from "../log/entries.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Blob } from "./blobs.ts";
import type { Tail } from "./chain.ts";
import { StoreDamagedError } from "./errors.ts";
import { KeptRuns } from "./kept-runs.ts";
import type {
  AliasRow,
  Appending,
  InboxRow,
  LogRow,
  NewRun,
  QuestionRow,
  QueuedRow,
  Rows,
  RunChange,
  RunRow,
} from "./rows.ts";
import { SqliteBlobs } from "./sqlite-blobs.ts";
import type { SqliteDatabase, SqlRow, SqlValue } from "./sqlite-database.ts";
import { hasBlobs, PRUNABLE, UNSHOWN } from "./sqlite-schema.ts";
import { flag, jsonOf, numberIn, numberOf, numberOrNull, textIn, textOf, textOrNull } from "./sqlite-values.ts";
import type { Claim, KeyName, Query, ThreadKey } from "./store.ts";

/**
 * A run's columns. Where its log ends stands in the log alone, so that an append changes no row; `sealed`, a bound from below that is moved
 * whenever something else of the row is, tells when the end of a log is lost.
 */
const HEAD = "max(sealed, ifnull((SELECT max(seq) FROM log WHERE run = runs.id), -1))";
const RUN = `runs.*, ${HEAD} AS head,
  (SELECT at FROM log WHERE run = runs.id ORDER BY seq DESC LIMIT 1) AS updated_at`;

const KEPT_TAILS = 1_000;

/** The last fact at or before an entry: at once by what the entry says; where that was pruned, by looking back. */
const LAST_FACT = `SELECT fact.seq, fact.chain FROM log AS last
  JOIN log AS fact ON fact.run = last.run AND fact.seq = last.seq - last.since
  WHERE last.run = ? AND last.seq = ? AND fact.chain IS NOT NULL`;
const LAST_FACT_LEFT =
  "SELECT seq, chain FROM log WHERE run = ? AND seq <= ? AND chain IS NOT NULL ORDER BY seq DESC LIMIT 1";

const THREAD_ID = "SELECT id FROM threads WHERE tenant = ? AND subject = ? AND agent = ? AND thread = ?";
const IN_THREAD = `runs.thread_id = (${THREAD_ID})`;

/** The tables as `sqlite-schema.ts` made them. Statements and mapping, no rule. */
export class SqliteRows implements Rows {
  readonly #db: SqliteDatabase;
  readonly #blobs: SqliteBlobs;
  /** Where the chains of the runs that were appended to last stand, by the place of their last entry. */
  readonly #tails = new Map<number, { readonly seq: number; readonly tail: Tail }>();
  /** Of an owner's. */
  readonly #kept: KeptRuns | null;

  /** @param isOwner - whether nobody else writes to the file */
  constructor(db: SqliteDatabase, isOwner: boolean) {
    this.#db = db;
    this.#blobs = new SqliteBlobs(db);
    this.#kept = isOwner ? new KeptRuns() : null;
  }

  /** Runs are read from the file again: what a transaction has written is gone, or it is the file that is asked for. */
  forget(): void {
    this.#kept?.clear();
  }

  threadId({ tenant, subject, agent, thread }: ThreadKey): number | null {
    const row = this.#db.get(THREAD_ID, tenant, subject, agent, thread);
    return row === null ? null : numberOf(row, "id");
  }

  addThread({ tenant, subject, agent, thread }: ThreadKey): number {
    return this.#db.run(
      "INSERT INTO threads (tenant, subject, agent, thread) VALUES (?, ?, ?, ?)",
      tenant,
      subject,
      agent,
      thread,
    );
  }

  run(uid: Uid): RunRow | null {
    return this.#kept?.named(uid) ?? this.#run("uid = ?", uid);
  }

  runOf(id: number): RunRow | null {
    return this.#kept?.get(id) ?? this.#run("id = ?", id);
  }

  #run(where: string, value: SqlValue): RunRow | null {
    const row = this.#db.get(`SELECT ${RUN} FROM runs WHERE ${where}`, value);
    return row === null ? null : this.#keep(runRow(row));
  }

  #keep(run: RunRow): RunRow {
    return this.#kept?.keep(run) ?? run;
  }

  newestRun(threadId: number): RunRow | null {
    const row = this.#db.get("SELECT id FROM runs WHERE thread_id = ? ORDER BY id DESC LIMIT 1", threadId);
    return row === null ? null : this.runOf(numberOf(row, "id"));
  }

  childrenOf(uid: Uid): readonly RunRow[] {
    return this.#db.all(`SELECT ${RUN} FROM runs WHERE parent = ? ORDER BY id`, uid).map(runRow);
  }

  addRun(run: NewRun): RunRow {
    const columns: [string, SqlValue][] = [
      ["uid", run.uid],
      ["thread_id", run.threadId],
      ["tenant", run.tenant],
      ["subject", run.subject],
      ["agent", run.agent],
      ["thread", run.thread],
      ["turn", run.turn],
      ["labels", JSON.stringify(run.labels)],
      ["created_at", run.createdAt],
      ["sealed", -1],
      ["parent", run.parent?.uid ?? null],
      ["parent_path", run.parent?.path ?? null],
      ...Object.entries(run).flatMap(([name, value]) => changeColumn(name, value)),
    ];
    const names = columns.map(([name]) => name).join(", ");
    const marks = columns.map(() => "?").join(", ");
    const id = this.#db.run(`INSERT INTO runs (${names}) VALUES (${marks})`, ...columns.map(([, value]) => value));
    return this.#keep({ ...run, id, head: -1, updatedAt: run.createdAt });
  }

  changeRun(id: number, change: RunChange): void {
    const columns = Object.entries(change).flatMap(([name, value]) => changeColumn(name, value));
    if (columns.length === 0) return;
    const set = columns.map(([name]) => `${name} = ?`).join(", ");
    this.#db.run(`UPDATE runs SET ${set}, sealed = ${HEAD} WHERE id = ?`, ...columns.map(([, value]) => value), id);
    this.#kept?.change(id, change);
  }

  appending(uid: Uid, epoch: number): Appending | null {
    const run = this.run(uid);
    if (run === null || run.owner === null || run.epoch !== epoch || run.aside !== null) return null;
    const { id, threadId, head, leg } = run;
    return { id, uid, threadId, head, leg };
  }

  claimable(now: number): RunRow | null {
    for (;;) {
      const row = this.#db.get(
        `SELECT ${RUN} FROM runs WHERE ready_at <= ?1 AND aside IS NULL AND (owner IS NULL OR until <= ?1)
         ORDER BY ready_at, id LIMIT 1`,
        now,
      );
      if (row === null) return null;
      try {
        return runRow(row);
      } catch (error) {
        if (!(error instanceof StoreDamagedError)) throw error;
        // A damaged row at the head of the queue would otherwise keep every run behind it from being claimed.
        this.#db.run("UPDATE runs SET aside = ? WHERE id = ?", error.message, numberOf(row, "id"));
        this.#kept?.drop(numberOf(row, "id"));
      }
    }
  }

  nextReadyAt(): number | null {
    const row = this.#db.get(
      `SELECT min(CASE WHEN owner IS NULL THEN ready_at ELSE max(ready_at, until) END) AS at
       FROM runs WHERE ready_at IS NOT NULL AND aside IS NULL`,
    );
    return row === null ? null : numberOrNull(row, "at");
  }

  waitingFor(key: KeyName): readonly RunRow[] {
    return this.#db.all(`SELECT ${RUN} FROM runs WHERE waits_for_key = ? ORDER BY id`, keyText(key)).map(runRow);
  }

  asking(kind: Interrupt["kind"]): readonly RunRow[] {
    return this.#db
      .all(
        `SELECT ${RUN} FROM runs WHERE aside IS NULL AND id IN
           (SELECT run FROM questions WHERE closed IS NULL AND kind = ? AND kind <> 'client-tool') ORDER BY id`,
        kind,
      )
      .map(runRow);
  }

  voidLeases(owner: string | null): number {
    const rows = this.#db.all(
      "UPDATE runs SET owner = NULL, until = 0 WHERE owner IS NOT NULL AND (?1 IS NULL OR owner = ?1) RETURNING id",
      owner,
    );
    this.#kept?.clear();
    return rows.length;
  }

  names(before: number | null, limit: number): readonly { readonly id: number; readonly uid: Uid }[] {
    return this.#db
      .all("SELECT id, uid FROM runs WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", before, limit)
      .map((row) => ({ id: numberOf(row, "id"), uid: textOf<Uid>(row, "uid") }));
  }

  runs(query: Query, before: number | null, limit: number): readonly RunRow[] {
    const { where, values } = whereOf(query, before === null ? [] : [["id < ?", before]]);
    return this.#db
      .all(`SELECT ${RUN} FROM runs WHERE ${where} ORDER BY id DESC LIMIT ?`, ...values, limit)
      .map(runRow);
  }

  addEntries(runId: number, rows: readonly LogRow[]): void {
    for (const { seq, at, text, since, chain } of rows) {
      this.#db.run(
        "INSERT INTO log (run, seq, at, since, chain, entry) VALUES (?, ?, ?, ?, ?, ?)",
        runId,
        seq,
        at,
        since,
        chain,
        text,
      );
    }
    this.#keepTail(runId, rows);
    const last = rows.at(-1);
    if (last !== undefined) this.#kept?.grow(runId, last.seq, last.at);
  }

  /** What the next append goes on from; read again where a rollback has left it behind or ahead. */
  #keepTail(runId: number, rows: readonly LogRow[]): void {
    const [first, last] = [rows[0], rows.at(-1)];
    if (first === undefined || last === undefined) return;
    const fact = rows.findLast(({ chain }) => chain !== null);
    const before = this.#tails.get(runId);
    this.#tails.delete(runId);
    if (fact?.chain != null) this.#tails.set(runId, { seq: last.seq, tail: { fact: fact.seq, chain: fact.chain } });
    else if (before?.seq === first.seq - 1) this.#tails.set(runId, { seq: last.seq, tail: before.tail });
    for (const oldest of this.#tails.keys()) {
      if (this.#tails.size <= KEPT_TAILS) return;
      this.#tails.delete(oldest);
    }
  }

  entries(runId: number, after: number, limit: number): readonly LogRow[] {
    return this.#db
      .all(
        "SELECT seq, at, since, chain, entry FROM log WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
        runId,
        after,
        limit,
      )
      .map((row) => ({
        seq: numberOf(row, "seq"),
        ...{ at: numberIn(row, "at"), since: numberIn(row, "since"), text: textIn(row, "entry") },
        chain: row.chain === null ? null : textIn(row, "chain"),
      }));
  }

  tail(runId: number, seq: number): Tail | null {
    const known = this.#tails.get(runId);
    if (known?.seq === seq) return known.tail;
    return this.#tailBy(LAST_FACT, runId, seq) ?? this.#tailBy(LAST_FACT_LEFT, runId, seq);
  }

  #tailBy(sql: string, runId: number, seq: number): Tail | null {
    const row = this.#db.get(sql, runId, seq);
    return row === null ? null : { fact: numberOf(row, "seq"), chain: textOf(row, "chain") };
  }

  dropFrames(runId: number): { readonly last: number; readonly texts: readonly string[] } {
    const frames = "FROM log WHERE run = ? AND chain IS NULL";
    const row = this.#db.get(`SELECT max(seq) AS last ${frames}`, runId);
    const texts = this.#db
      .all(`SELECT entry ${frames} AND ${hasBlobs("entry")}`, runId)
      .map((one) => textIn(one, "entry"));
    this.#db.run(`DELETE ${frames}`, runId);
    return { last: (row && numberOrNull(row, "last")) ?? -1, texts };
  }

  addBlob(blob: Blob): void {
    this.#blobs.add(blob);
  }

  blob(hash: string): string | null {
    return this.#blobs.text(hash);
  }

  isBlobUsed(hash: string): boolean {
    return this.#blobs.isUsed(hash);
  }

  dropBlob(hash: string): void {
    this.#db.run("DELETE FROM blobs WHERE hash = ?", hash);
  }

  addInbox(runId: number, { at, by, text }: Omit<InboxRow, "row">): void {
    this.#db.run("INSERT INTO inbox (run, at, by, item) VALUES (?, ?, ?, ?)", runId, at, by, text);
  }

  inbox(runId: number): readonly InboxRow[] {
    return this.#db.all("SELECT row, at, by, item FROM inbox WHERE run = ? ORDER BY row", runId).map((row) => ({
      row: numberOf(row, "row"),
      at: numberOf(row, "at"),
      by: textOf(row, "by"),
      text: textOf(row, "item"),
    }));
  }

  dropInbox(runId: number, row: number): void {
    this.#db.run("DELETE FROM inbox WHERE run = ? AND row = ?", runId, row);
  }

  addQueued(threadId: number, { at, cancels, text }: Omit<QueuedRow, "n">): void {
    this.#db.run(
      "INSERT INTO queue (thread_id, at, cancels, request) VALUES (?, ?, ?, ?)",
      threadId,
      at,
      cancels ? 1 : 0,
      text,
    );
  }

  queued(threadId: number): readonly QueuedRow[] {
    return this.#db.all("SELECT * FROM queue WHERE thread_id = ? ORDER BY n", threadId).map((row) => ({
      n: numberOf(row, "n"),
      at: numberOf(row, "at"),
      cancels: flag(row, "cancels"),
      text: textOf(row, "request"),
    }));
  }

  dropQueued(threadId: number, n: number): void {
    this.#db.run("DELETE FROM queue WHERE thread_id = ? AND n = ?", threadId, n);
  }

  dueThreads(): readonly ThreadKey[] {
    return this.#db
      .all(
        `SELECT tenant, subject, agent, thread FROM threads WHERE id IN (SELECT thread_id FROM queue)
          AND (SELECT outcome FROM runs WHERE thread_id = threads.id ORDER BY runs.id DESC LIMIT 1) IS NOT NULL`,
      )
      .map((row) => ({
        tenant: textOf(row, "tenant"),
        subject: textOf(row, "subject"),
        agent: textOf(row, "agent"),
        thread: textOf(row, "thread"),
      }));
  }

  question(id: string): QuestionRow | null {
    return this.#question("SELECT * FROM questions WHERE id = ?", id);
  }

  questionAt(runId: number, path: Path): QuestionRow | null {
    return this.#question("SELECT * FROM questions WHERE run = ? AND path = ? AND kind = 'client-tool'", runId, path);
  }

  #question(sql: string, ...values: SqlValue[]): QuestionRow | null {
    const row = this.#db.get(sql, ...values);
    return row === null ? null : this.#blobs.question(row);
  }

  openQuestions(runId: number): readonly QuestionRow[] {
    return this.#db
      .all("SELECT * FROM questions WHERE run = ? AND closed IS NULL ORDER BY n", runId)
      .map((row) => this.#blobs.question(row));
  }

  addQuestion({ runId, openedAt, interrupt, closed, contested }: Omit<QuestionRow, "n">): void {
    this.#db.run(
      "INSERT INTO questions (id, run, kind, path, opened_at, interrupt, closed, contested) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      interrupt.id,
      runId,
      interrupt.kind,
      interrupt.path,
      openedAt,
      this.#blobs.packed(interrupt),
      closed && this.#blobs.packed(closed),
      JSON.stringify(contested),
    );
  }

  changeQuestion(n: number, { closed, contested }: Partial<Pick<QuestionRow, "closed" | "contested">>): void {
    if (closed !== undefined) {
      this.#db.run("UPDATE questions SET closed = ? WHERE n = ?", closed && this.#blobs.packed(closed), n);
    }
    if (contested !== undefined) {
      this.#db.run("UPDATE questions SET contested = ? WHERE n = ?", JSON.stringify(contested), n);
    }
  }

  /** `CROSS`: few questions are open, and a tenant may have any number of runs, https://sqlite.org/lang_select.html#fromclause. */
  questions(query: Query, after: number | null, limit: number): readonly (QuestionRow & { readonly run: RunRow })[] {
    const { where, values } = whereOf(query, after === null ? [] : [["n > ?", after]]);
    return this.#db
      .all(
        `SELECT ${RUN}, n, questions.id AS question, run, opened_at, interrupt, closed, contested
         FROM questions CROSS JOIN runs ON runs.id = run
         WHERE closed IS NULL AND kind <> 'client-tool' AND aside IS NULL AND ${where} ORDER BY n LIMIT ?`,
        ...values,
        limit,
      )
      .map((row) => ({ ...this.#blobs.question(row), run: runRow(row) }));
  }

  alias(threadId: number, runId: string): AliasRow | null {
    const row = this.#db.get("SELECT * FROM aliases WHERE thread_id = ? AND run_id = ?", threadId, runId);
    if (row === null) return null;
    return {
      runId: numberOf(row, "run"),
      leg: numberOrNull(row, "leg"),
      added: textOrNull(row, "added"),
      seq: numberOrNull(row, "seq"),
    };
  }

  setAlias(threadId: number, name: string, { runId, leg, added, seq }: AliasRow): void {
    this.#db.run(
      "INSERT OR REPLACE INTO aliases (thread_id, run_id, run, leg, added, seq) VALUES (?, ?, ?, ?, ?, ?)",
      threadId,
      name,
      runId,
      leg,
      added,
      seq,
    );
  }

  settleAliases(runId: number, leg: number): void {
    this.#db.run("UPDATE aliases SET leg = ? WHERE run = ? AND leg IS NULL", leg, runId);
  }

  hasMessage(threadId: number, id: string): boolean {
    return this.#db.get("SELECT 1 FROM messages WHERE thread_id = ? AND id = ?", threadId, id) !== null;
  }

  addMessage(threadId: number, id: string): void {
    this.#db.run("INSERT OR IGNORE INTO messages (thread_id, id) VALUES (?, ?)", threadId, id);
  }

  claim({ tenant, tool, key }: KeyName): Claim | null {
    const row = this.#db.get("SELECT * FROM claims WHERE tenant = ? AND tool = ? AND key = ?", tenant, tool, key);
    return row === null ? null : this.#blobs.claim(row);
  }

  claimsOf(holder: Uid): readonly Claim[] {
    return this.#db
      .all("SELECT * FROM claims WHERE holder = ? ORDER BY id", holder)
      .map((row) => this.#blobs.claim(row));
  }

  setClaim({ tenant, tool, key, argsHash, holder, state, output, until }: Claim): void {
    this.#db.run(
      `INSERT INTO claims (tenant, tool, key, args_hash, holder, path, state, output, until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (tenant, tool, key) DO UPDATE SET args_hash = excluded.args_hash, holder = excluded.holder,
         path = excluded.path, state = excluded.state, output = excluded.output, until = excluded.until`,
      tenant,
      tool,
      key,
      argsHash,
      holder.uid,
      holder.path,
      state,
      output === undefined ? null : this.#blobs.packed(output),
      until,
    );
  }
}

/** The columns of what `RunChange` may say; nothing for any other member of a run. */
function changeColumn(name: string, value: unknown): [string, SqlValue][] {
  const column = CHANGES[name];
  if (column === undefined || value === undefined) return [];
  if (typeof value === "boolean") return [[column, value ? 1 : 0]];
  if (typeof value === "number" || typeof value === "string" || value === null) return [[column, value]];
  return [[column, keyText(value as KeyName)]]; // the one member that is an object is `waitsForKey`
}

const CHANGES: { readonly [member: string]: string } = {
  leg: "leg",
  legOpen: "leg_open",
  outcome: "outcome",
  readyAt: "ready_at",
  owner: "owner",
  epoch: "epoch",
  until: "until",
  waitsForKey: "waits_for_key",
  aside: "aside",
  pruned: "pruned",
} satisfies Record<keyof RunChange, string>;

function keyText({ tenant, tool, key }: KeyName): string {
  return JSON.stringify([tenant, tool, key]);
}

function keyOf(text: string | null): KeyName | null {
  if (text === null) return null;
  const [tenant, tool, key]: unknown[] = JSON.parse(text);
  return { tenant: String(tenant), tool: String(tool), key: String(key) };
}

function runRow(row: SqlRow): RunRow {
  return {
    id: numberOf(row, "id"),
    uid: textOf<Uid>(row, "uid"),
    threadId: numberOrNull(row, "thread_id"),
    tenant: textOf(row, "tenant"),
    subject: textOf(row, "subject"),
    agent: textOf(row, "agent"),
    thread: textOrNull(row, "thread"),
    turn: numberOf(row, "turn"),
    labels: jsonOf<RunRow["labels"]>(row, "labels", isJsonObject),
    createdAt: numberOf(row, "created_at"),
    // Of the log's last row: what is wrong with that is for whoever reads the log.
    updatedAt: typeof row.updated_at === "number" ? row.updated_at : numberOf(row, "created_at"),
    head: numberOf(row, "head"),
    leg: numberOf(row, "leg"),
    legOpen: flag(row, "leg_open"),
    outcome: textOrNull<NonNullable<RunRow["outcome"]>>(row, "outcome"),
    readyAt: numberOrNull(row, "ready_at"),
    owner: textOrNull(row, "owner"),
    epoch: numberOf(row, "epoch"),
    until: numberOf(row, "until"),
    waitsForKey: keyOf(textOrNull(row, "waits_for_key")),
    aside: textOrNull(row, "aside"),
    pruned: numberOrNull(row, "pruned"),
    parent: parentOf(row),
  };
}

function parentOf(row: SqlRow): RunRow["parent"] {
  const uid = textOrNull<Uid>(row, "parent");
  return uid === null ? null : { uid, path: textOf<Path>(row, "parent_path") };
}

function whereOf(query: Query, more: readonly [string, SqlValue][]): { where: string; values: SqlValue[] } {
  const { tenant, subject, agent, thread, run } = query;
  const terms: (readonly [string, ...SqlValue[]])[] = [...more];
  if (tenant !== null && subject !== undefined && agent !== undefined && thread !== undefined) {
    // By its index alone: whom it belongs to may have had any number of others.
    terms.push([IN_THREAD, tenant, subject, agent, thread]);
  } else {
    if (tenant !== null) terms.push(["tenant = ?", tenant]);
    if (subject !== undefined) terms.push(["subject = ?", subject]);
    if (agent !== undefined) terms.push(["agent = ?", agent]);
    if (thread !== undefined) terms.push(["thread = ?", thread]);
  }
  if (run !== undefined) terms.push(["uid = ?", run]);
  if (query.parent !== undefined) terms.push(["parent = ?", query.parent]);
  if (query.prunable === true) terms.push([PRUNABLE], [UNSHOWN]);
  if (terms.length === 0) return { where: "TRUE", values: [] };
  return { where: terms.map(([term]) => term).join(" AND "), values: terms.flatMap(([, ...value]) => value) };
}
