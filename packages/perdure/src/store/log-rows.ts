/**
 * Entries as rows of the log, and back.
 *
 * 1. Each fact holds what the one before it held, its place, its time and its stored text, hashed: the chain. The first one's predecessor is
 *    the run's uid. Frames are not in it, because they may be pruned; each says how far before it the last fact is.
 * 2. What is read is checked against the chain, from the fact before the first one read. The bytes of a blob are checked by their name.
 * 3. Where a run's frames were pruned, up to the last of them, what is missing was a frame: a missing fact breaks the chain.
 * 4. Every fault names the run and the entry, and is one of three: it is missing, unreadable, or not what was appended.
 */
import { type Encoded, type Entry, EntryError, encodeEntry, entryOf, type NewEntry } from "../log/entries.ts";
import { toJson } from "../protocol/json.ts";
import type { Uid } from "../protocol/words.ts";
import { type Blob, BlobFault, pack, unpack } from "./blobs.ts";
import { link, startOf, type Tail } from "./chain.ts";
import { EntryMissingError } from "./errors.ts";
import type { Appending, LogRow, Rows, RunRow } from "./rows.ts";

/** An entry as whoever reads the log gets it, and as it is kept. */
export interface Stored extends Encoded {
  readonly blobs: readonly Blob[];
}

/** @throws as `encodeEntry` does */
export function stored(entry: NewEntry): Stored {
  const encoded = encodeEntry(entry);
  const { text, blobs } = pack(encoded.text, () => toJson(encoded.entry));
  return { entry: encoded.entry, text, blobs };
}

/** Appends entries behind the run's head. */
export function addEntries(rows: Rows, run: Appending, at: number, entries: readonly Stored[]): void {
  let seq = run.head;
  let tail = entries.length === 0 ? startOf(run.uid) : tailAt(rows, run, run.head);
  const added = entries.map(({ entry, text, blobs }): LogRow => {
    seq += 1;
    for (const blob of blobs) rows.addBlob(blob);
    if (entry.kind === "frame") return { seq, at, text, since: seq - tail.fact, chain: null };
    tail = { fact: seq, chain: link(tail, seq, at, text) };
    return { seq, at, text, since: 0, chain: tail.chain };
  });
  rows.addEntries(run.id, added);
}

function tailAt(rows: Rows, run: Pick<Appending, "id" | "uid">, seq: number): Tail {
  return (seq < 0 ? null : rows.tail(run.id, seq)) ?? startOf(run.uid);
}

/**
 * The entries from `from` on, at most `limit`; fewer are the last ones.
 *
 * @throws EntryError, EntryMissingError, StoreDamagedError
 */
export function readEntries(
  rows: Rows,
  run: Pick<RunRow, "id" | "uid" | "head" | "pruned">,
  from: number,
  limit: number,
): readonly Entry[] {
  const entries: Entry[] = [];
  const pruned = run.pruned ?? -1;
  let tail: Tail | null = null;
  let next = from;
  for (const row of rows.entries(run.id, from - 1, limit)) {
    if (row.seq !== next && row.seq > pruned + 1) {
      // What was pruned ends before it; so does what is missing.
      throw new EntryMissingError(run.uid, Math.max(next, pruned + 1), run.head);
    }
    const entry = readEntry(rows, run.uid, row);
    tail = checked(run, tail ?? tailAt(rows, run, from - 1), row, entry);
    entries.push(entry);
    next = row.seq + 1;
  }
  if (entries.length < limit && next <= run.head) throw new EntryMissingError(run.uid, next, run.head);
  return entries;
}

/** The entry of a row, its blobs put back. @throws {@link EntryError} */
export function readEntry(rows: Pick<Rows, "blob">, uid: Uid, { seq, at, text }: LogRow): Entry {
  let plain: unknown;
  try {
    plain = unpack(text, (hash) => rows.blob(hash));
  } catch (error) {
    if (!(error instanceof BlobFault)) throw error;
    throw new EntryError("read", uid, seq, error.where, error.why);
  }
  return entryOf(plain, { run: uid, seq, at });
}

/** @returns the chain behind this entry @throws {@link EntryError} */
function checked(
  run: Pick<RunRow, "uid" | "pruned">,
  tail: Tail,
  { seq, at, text, since, chain }: LogRow,
  { kind }: Entry,
): Tail {
  const altered = () =>
    new EntryError("read", run.uid, seq, "", "it is not what was appended here: the chain of hashes breaks at it");
  if (kind === "frame") {
    // A pruned run has none, and gets none any more.
    if (run.pruned !== null || chain !== null || since !== seq - tail.fact || !Number.isFinite(at)) throw altered();
    return tail;
  }
  if (since !== 0 || chain !== link(tail, seq, at, text)) throw altered();
  return { fact: seq, chain };
}
