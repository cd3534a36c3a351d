import process from "node:process";
import type { DatabaseSync, DatabaseSyncInstance } from "@photostructure/sqlite";

export interface Order {
  readonly id: string;
  readonly email: string;
  readonly item: string;
  readonly cents: number;
  readonly label: string;
}

export interface LedgerRow {
  readonly refundId: string;
  readonly orderId: string;
  readonly cents: number;
}

const ORDERS: readonly Omit<Order, "label">[] = [
  { id: "A-1001", email: "anna@example.com", item: "desk lamp", cents: 3_000 },
  { id: "A-1002", email: "anna@example.com", item: "floor lamp", cents: 8_000 },
  { id: "A-1003", email: "ben@example.com", item: "night light", cents: 1_250 },
  { id: "A-1004", email: "ben@example.com", item: "chandelier", cents: 42_000 },
];

/**
 * The world outside the agent: a shop's orders, and the ledger of the bank. The ledger has no unique key on purpose. It does not refuse a
 * second refund, it counts it, so two rows for one order are the proof that somebody paid twice.
 */
export class Books {
  readonly #db: DatabaseSyncInstance;

  private constructor(db: DatabaseSyncInstance) {
    this.#db = db;
  }

  /** @param file - made, with its orders, when it is not there */
  static async open(file: string): Promise<Books> {
    const db = new (await sqliteDriver())(file);
    db.exec(`
      PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000;
      CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, email TEXT, item TEXT, cents INTEGER, label TEXT);
      CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, order_id TEXT, cents INTEGER, key TEXT)`);
    const add = db.prepare("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, 'open')");
    for (const { id, email, item, cents } of ORDERS) add.run(id, email, item, cents);
    return new Books(db);
  }

  find(query: string): Order[] {
    return this.#all<Order>("SELECT * FROM orders WHERE id = ? OR email = ? ORDER BY id", query, query);
  }

  /** @returns whether there is such an order */
  label(orderId: string, label: string): boolean {
    return this.#db.prepare("UPDATE orders SET label = ? WHERE id = ?").run(label, orderId).changes === 1;
  }

  /** Moves the money, each time it is called. */
  refund({ orderId, cents, key }: { orderId: string; cents: number; key: string }): string {
    const sql = "INSERT INTO ledger (order_id, cents, key) VALUES (?, ?, ?)";
    return `R-${this.#db.prepare(sql).run(orderId, cents, key).lastInsertRowid}`;
  }

  /** The refund that was made under a key. */
  refundOf(key: string): string | null {
    return (
      this.#all<{ refundId: string }>("SELECT 'R-' || id AS refundId FROM ledger WHERE key = ?", key)[0]?.refundId ??
      null
    );
  }

  ledger(): LedgerRow[] {
    return this.#all<LedgerRow>("SELECT 'R-' || id AS refundId, order_id AS orderId, cents FROM ledger ORDER BY id");
  }

  close(): void {
    this.#db.close();
  }

  /** The one cast: a row is what its SELECT names. */
  #all<Row>(sql: string, ...values: string[]): Row[] {
    return this.#db.prepare(sql).all(...values) as Row[];
  }
}

/** Node's own SQLite from 22.13 on; before, the package with the same interface. */
async function sqliteDriver(): Promise<typeof DatabaseSync> {
  const own = process.getBuiltinModule?.("node:sqlite") as { DatabaseSync: typeof DatabaseSync } | undefined;
  return (own ?? (await import("@photostructure/sqlite"))).DatabaseSync;
}

export function euros(cents: number): string {
  return `${(cents / 100).toFixed(2)} EUR`;
}
