import { describe, expect, test } from "vitest";
import { z } from "zod";
import {
  type Agent,
  agent,
  applied,
  HandlerError,
  type LoopAgent,
  notApplied,
  suspend,
  tool,
} from "../../src/index.ts";
import {
  type Boundary,
  CrashMatrixError,
  type CrashMatrixOptions,
  crashMatrix,
  cutHere,
  MatrixScriptError,
  type ScriptedTurn,
  scriptedModel,
  sqliteDisk,
} from "../../src/testing.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";

/** A service that does what it is told, as often as it is told, and that can look up what it did. */
class Service {
  readonly done: string[] = [];
  /** What it does comes a moment after it is asked, and its answer a moment after that. */
  async does(row: string): Promise<void> {
    await cutHere(`before ${row}`);
    this.done.push(row);
    await cutHere(`behind ${row}`);
  }
  did = (row: string): boolean => this.done.includes(row);
}

interface Desk {
  step: string;
  refunds?: string[];
}

const orderId = z.object({ orderId: z.string() });
const refunded = z.object({ refundId: z.string() });

function desk(tools: readonly ToolDefinition[], turns: readonly ScriptedTurn[]): LoopAgent {
  return agent<Desk>({
    name: "desk",
    model: scriptedModel(turns),
    tools,
    state: { initial: () => ({ step: "idle" }) },
  }) as LoopAgent;
}

const calls = (
  ...named: readonly (readonly [name: string, input: { [name: string]: string | number }])[]
): ScriptedTurn => ({
  calls: named.map(([name, input]) => ({ name, input })),
});
const done = { text: "Done." };

const refund = (service: Service) =>
  tool({
    name: "refund",
    description: "Refunds an order, in cents.",
    effect: "write",
    input: z.object({ orderId: z.string(), cents: z.number() }),
    output: refunded,
    state: z.custom<Desk>(),
    idempotencyKey: ({ orderId: order }) => ["refund", order],
    approval: ({ cents }) => cents > 5_000 && { message: `Refund ${cents / 100} EUR?` },
    async call({ orderId: order }, ctx) {
      ctx.progress({ order });
      ctx.log("refunding");
      await service.does(`refund ${order}`);
      return { refundId: `R${order}` };
    },
    reconcile: ({ orderId: order }) =>
      service.did(`refund ${order}`) ? applied({ refundId: `R${order}` }) : notApplied(),
    reduce(state, { refundId }) {
      state.refunds = [...(state.refunds ?? []), refundId];
    },
  });

const search = () =>
  tool({
    name: "search",
    description: "Finds orders.",
    effect: "read",
    input: z.object({ email: z.string() }),
    state: z.custom<Desk>(),
    async call({ email }, ctx) {
      ctx.updateState((state) => {
        state.step = "searching";
      });
      const activity = ctx.activity("SEARCH", { found: 0 });
      activity.update((draft) => {
        draft.found = 2;
      });
      ctx.state.step = `found ${email}`;
      return [{ id: "1" }, { id: "2" }];
    },
  });

const approve = { kind: "approval", reply: { status: "resolved", payload: { approved: true } } } as const;

const served: CrashMatrixOptions<Service> = { world: () => new Service(), effects: ({ done }) => done };

/** Of the cuts that found something. */
const places = (findings: readonly { readonly cut: readonly Boundary[] }[]): string[] =>
  findings.map(({ cut }) => cut.map(({ label }) => label).join(", then "));

describe("an agent that keeps its promises", () => {
  test("a read, a write, and a write that needs approval, in two turns", async () => {
    const report = await crashMatrix(
      (service: Service) =>
        desk(
          [search(), refund(service)],
          [
            { reasoning: "Hm.", text: "Looking.", ...calls(["search", { email: "a@b.c" }]) },
            calls(["refund", { orderId: "1", cents: 3_000 }]),
            done,
            calls(["refund", { orderId: "2", cents: 8_000 }]),
            done,
          ],
        ),
      { ...served, script: { turns: ["refund order 1", { says: "and order 2" }], answers: [approve] } },
    );
    report.assertNoFindings();
    expect(report).toMatchObject({ ok: true, skipped: 0, gaveUp: 0, plays: report.cuts + 2 });
    const { cuts, labels } = countedPlaces(report.table());
    expect(cuts).toBe(report.cuts);
    expect(labels).toEqual(expect.arrayContaining(["1: 1.0 search", "1: 3.0 refund", "2: 1.0 refund", "2: 0 model"]));
  });

  test("calls side by side, a client's tool, and a suspension that is resumed", async () => {
    const transfer = (service: Service) =>
      tool({
        ...{ name: "transfer", description: "Transfers money.", effect: "write", input: z.object({}) },
        ...{ answer: z.object({ account: z.string() }), output: z.object({ to: z.string() }) },
        call: () => suspend({ message: "To which account?" }),
        async resume({ account }) {
          await service.does(`transfer ${account}`);
          return { to: account };
        },
        reconcile: () => (service.did("transfer 42") ? applied({ to: "42" }) : notApplied()),
      });
    const report = await crashMatrix(
      (service: Service) =>
        desk(
          [search(), refund(service), transfer(service)],
          [
            calls(
              ["refund", { orderId: "1", cents: 1 }],
              ["search", { email: "a@b.c" }],
              ["transfer", {}],
              ["paint", { colour: "red" }],
            ),
            done,
          ],
        ),
      {
        ...served,
        script: {
          tools: [{ name: "paint", description: "Paints the page.", parameters: { type: "object" } }],
          results: { paint: (_, { happened }) => `painted, refunded: ${happened("refund 1")}` },
          answers: [{ tool: "transfer", reply: { status: "resolved", payload: { account: "42" } } }],
        },
      },
    );
    report.assertNoFindings();
  });

  test("a write of which nobody knows, asked of a human who looks", async () => {
    const report = await crashMatrix(
      (service: Service) => desk([mail(service)], [calls(["mail", { to: "bob" }]), done]),
      {
        ...served,
        script: {
          answers: ({ kind, input }, { happened }) => {
            expect(kind).toBe("unknown-write");
            const { to } = input as { to: string };
            const payload = happened(`mail ${to}`) ? { did: "yes", output: { sent: to } } : { did: "no" };
            return { status: "resolved", payload };
          },
        },
      },
    );
    report.assertNoFindings();
  });

  test("a run that its client cancels when it is asked, two processes dying", async () => {
    const report = await crashMatrix(
      (service: Service) => desk([refund(service)], [calls(["refund", { orderId: "2", cents: 8_000 }]), done]),
      { ...served, script: { answers: [{ kind: "approval", reply: "cancel-run" }] }, deaths: 2, limit: 60 },
    );
    report.assertNoFindings();
    expect(report.cuts).toBe(60);
    expect(report.skipped).toBeGreaterThan(0);
  });

  test("several plays at once find what one after another does, and say it in the same order", async () => {
    const careless = (service: Service) =>
      desk([{ ...mail(service), effect: "read" }], [calls(["mail", { to: "bob" }]), done]);
    const [one, four] = [
      await crashMatrix(careless, { ...served, deaths: 2, limit: 12 }),
      await crashMatrix(careless, { ...served, deaths: 2, limit: 12, concurrency: 4 }),
    ];
    expect(one.findings).not.toEqual([]);
    expect(four.findings).toEqual(one.findings);
    expect([four.cuts, four.skipped]).toEqual([one.cuts, one.skipped]);
  });

  test("waits for times are no waits: back-off, and a write that may still land", async () => {
    const report = await crashMatrix((service: Service) => {
      let isDown = true;
      const flaky = tool({
        ...{
          name: "flaky",
          description: "Fails once in each process.",
          effect: "write",
          settle: "1h",
          input: z.object({}),
        },
        async call() {
          if (isDown) {
            isDown = false;
            throw new HandlerError("down", { applied: "no", retryable: true, retryAfter: 30_000 });
          }
          await service.does("flaky");
          return {};
        },
        reconcile: () => (service.did("flaky") ? applied({}) : notApplied()),
      });
      return desk([flaky], [calls(["flaky", {}]), done]);
    }, served);
    report.assertNoFindings();
  });

  test("over SQLite, with two deaths in a row", async () => {
    const report = await crashMatrix(
      (service: Service) => desk([refund(service)], [calls(["refund", { orderId: "1", cents: 1 }]), done]),
      { ...served, disk: sqliteDisk, deaths: 2, limit: 60 },
    );
    report.assertNoFindings();
  });

  test("a fixed agent and a fake that is there once for all, emptied for each play", async () => {
    const service = new Service();
    const fixed = desk([refund(service)], [calls(["refund", { orderId: "1", cents: 1 }]), done]);
    const report = await crashMatrix(fixed, {
      world: () => {
        service.done.length = 0;
      },
      effects: () => service.done,
    });
    report.assertNoFindings();
  });
});

/** The rows of the matrix, and all its plays. */
function countedPlaces(table: string): { readonly cuts: number; readonly labels: readonly string[] } {
  const rows = table.split("\n").slice(3);
  const cuts = [...table.matchAll(/ (\d+) ok/g)].reduce((sum, [, n]) => sum + Number(n), 0);
  return { cuts, labels: rows.map((row) => (/^((?:\d+: )?\S* +\w+)/.exec(row)?.[1] ?? "").replace(/ +/g, " ")) };
}

const mail = (service: Service) =>
  tool({
    ...{ name: "mail", description: "Sends a letter.", effect: "write" },
    ...{ input: z.object({ to: z.string() }), output: z.object({ sent: z.string() }) },
    async call({ to }) {
      await service.does(`mail ${to}`);
      return { sent: to };
    },
  });

/** An agent of one call. */
const calling = (make: (service: Service) => ToolDefinition) => (service: Service) =>
  desk([make(service)], [calls(["act", { orderId: "1" }]), done]);

describe("an agent that breaks them", () => {
  test("a human who says of a write that it did not happen, and has not looked: a duplicate behind its effect", async () => {
    const report = await crashMatrix(
      (service: Service) => desk([mail(service)], [calls(["mail", { to: "bob" }]), done]),
      {
        ...served,
        script: {
          answers: [{ kind: "unknown-write", tool: "mail", reply: { status: "resolved", payload: { did: "no" } } }],
        },
      },
    );
    expect(report.ok).toBe(false);
    expect(report.findings).toEqual(report.duplicates);
    expect(report.duplicates[0]).toMatchObject({ what: 'effect "mail bob"', expected: "once", found: "2 times" });
    expect(places(report.duplicates)).toEqual([
      "before commit 9 (step.finished 1.0)",
      '1.0 mail: at cutHere("behind mail bob")',
      "1.0 mail: after its last line",
    ]);
    expect(() => report.assertNoFindings()).toThrow(CrashMatrixError);
    expect(() => report.assertNoFindings()).toThrow(/duplicate: effect "mail bob": expected once, found 2 times/);
  });

  test("a human who gives a write up loses at most that write, and is counted", async () => {
    const report = await crashMatrix(
      (service: Service) => desk([mail(service)], [calls(["mail", { to: "bob" }]), done]),
      {
        ...served,
        script: { answers: [{ message: /mail/, reply: { status: "cancelled" } }] },
      },
    );
    report.assertNoFindings();
    expect(report.gaveUp).toBeGreaterThan(3);
    expect(report.table()).toContain("given up by the script");
  });

  test("an idempotent tool that ignores its key: a duplicate", async () => {
    const act = (service: Service) =>
      tool({
        ...{ name: "act", description: "Acts.", effect: "idempotent", input: orderId },
        async call({ orderId: order }) {
          await service.does(`act ${order}`);
          return {};
        },
      });
    const report = await crashMatrix(calling(act), served);
    expect(places(report.duplicates)).toContain("1.0 act: after its last line");
    expect(places(report.duplicates)).toContain('1.0 act: at cutHere("behind act 1")');
    expect(places(report.duplicates)).not.toContain("1.0 act: before its first line");
    expect(report.findings).toEqual(report.duplicates);
  });

  test("a read that acts: a duplicate", async () => {
    const act = (service: Service) =>
      tool({
        ...{ name: "act", description: "Reads, and counts the readers.", effect: "read", input: orderId },
        async call({ orderId: order }, ctx) {
          service.done.push(`read ${order}`);
          ctx.progress("read");
          return {};
        },
      });
    const report = await crashMatrix(calling(act), served);
    expect(places(report.duplicates)).toEqual(
      expect.arrayContaining(["1.0 act: at ctx.progress", "1.0 act: after its last line"]),
    );
    expect(report.findings).toEqual(report.duplicates);
  });

  test("half an effect that reconcile takes for the whole: a loss", async () => {
    const act = (service: Service) =>
      tool({
        ...{ name: "act", description: "Charges and sends.", effect: "write", input: orderId },
        async call({ orderId: order }) {
          await service.does(`charge ${order}`);
          await service.does(`send ${order}`);
          return {};
        },
        reconcile: ({ orderId: order }) => (service.did(`charge ${order}`) ? applied({}) : notApplied()),
      });
    const report = await crashMatrix(calling(act), served);
    expect(report.findings).toEqual(report.losses);
    expect(places(report.losses)).toEqual([
      '1.0 act: at cutHere("behind charge 1")',
      '1.0 act: at cutHere("before send 1")',
    ]);
    expect(report.losses[0]).toMatchObject({ what: 'effect "send 1"', expected: "once", found: "never" });
  });

  test("a tool that swallows a failure and says that it went well: a loss", async () => {
    const act = (service: Service) => {
      // A lock that the process before has not given back.
      const locked = service as Service & { isLocked?: boolean };
      return tool({
        ...{ name: "act", description: "Acts under a lock.", effect: "idempotent", input: orderId },
        async call({ orderId: order }) {
          try {
            if (locked.isLocked) throw new Error("locked");
            locked.isLocked = true;
            await cutHere();
            service.done.push(`act ${order}`);
            locked.isLocked = false;
          } catch {}
          return {};
        },
      });
    };
    const report = await crashMatrix(calling(act), served);
    expect(places(report.losses)).toEqual(["1.0 act: at cutHere()"]);
    expect(report.losses[0]).toMatchObject({ what: 'effect "act 1"', expected: "once", found: "never" });
  });

  test("an output that another attempt makes otherwise: differences in step and conversation", async () => {
    const act = () => {
      return tool({
        ...{ name: "act", description: "Says which attempt it is.", effect: "read", input: orderId },
        call: (_, { attempt }) => ({ attempt }),
      });
    };
    const report = await crashMatrix(calling(act), served);
    expect(report.findings).toEqual(report.differences);
    const [step, message] = report.differences;
    expect(step).toMatchObject({ turn: 1, step: "1.0", tool: "act", what: "end" });
    expect(step?.found).toMatchObject({ output: { attempt: 2 } });
    expect(message).toMatchObject({ what: "the client's message 3", found: { content: '{"attempt":2}' } });
    expect(report.table()).toMatch(/1\.0 +act +\d+ of \d+ +1 of 1 +1 of 1$/m);
  });

  test("an agent that no two plays find alike is found without a cut, and not cut", async () => {
    let plays = 0;
    const act = () =>
      tool({
        ...{ name: "act", description: "Counts.", effect: "read", input: orderId },
        call: () => ++plays,
      });
    const report = await crashMatrix(calling(act), served);
    expect(report).toMatchObject({ ok: false, cuts: 0, plays: 2 });
    expect(report.differences[0]).toMatchObject({ cut: [], step: "1.0" });
    expect(report.table()).toContain("without any cut");
  });

  test("an effect that happens only after a cut is unexpected", async () => {
    const act = (service: Service) =>
      tool({
        ...{ name: "act", description: "Acts.", effect: "idempotent", input: orderId },
        call: (_, { attempt, idempotencyKey }) => {
          const row = `${idempotencyKey} ${attempt}`;
          if (!service.did(row)) service.done.push(row);
          return {};
        },
      });
    const report = await crashMatrix(calling(act), served);
    expect(report.unexpected.length).toBeGreaterThan(3);
    expect(report.unexpected[0]).toMatchObject({ expected: "never", found: "once" });
  });
});

describe("bodies that do not end", () => {
  const patience = 100;

  test("one that never does is found without a cut", async () => {
    const act = () =>
      tool({
        ...{ name: "act", description: "Hangs.", effect: "read", input: orderId },
        call: () => new Promise(() => {}),
      });
    const report = await crashMatrix(calling(act), { ...served, patience });
    expect(report).toMatchObject({ ok: false, cuts: 0 });
    expect(report.unexpected).toMatchObject([{ cut: [], step: "1.0", tool: "act", what: "call" }]);
  });

  test("one that waits for another that its process never begins is found", async () => {
    const pair = () => {
      let wake = (): void => {};
      const isAsleep = new Promise<void>((asleep) => {
        wake = asleep;
      });
      const read = (name: string, call: () => Promise<unknown>) =>
        tool({
          ...{ name, description: name, effect: "read", input: z.object({}) },
          call: async (_, ctx) => [ctx.log(name), await call()].length,
        });
      return desk(
        [read("sleep", () => isAsleep), read("wake", async () => wake())],
        [calls(["sleep", {}], ["wake", {}]), done],
      );
    };
    const report = await crashMatrix(pair, { ...served, patience });
    expect(report.findings).toEqual(report.unexpected);
    expect(places(report.unexpected)).toContain("1.0 sleep: at ctx.log");
    const found = { step: "1.0", tool: "sleep", what: "call after its process died", found: "still runs" };
    for (const finding of report.unexpected) expect(finding).toMatchObject(found);
  });

  test("a lock that a dead process holds leaves the next one stuck", async () => {
    const act = (service: Service) => {
      const locked = service as Service & { isLocked?: boolean };
      return tool({
        ...{ name: "act", description: "Waits for a lock.", effect: "idempotent", input: orderId },
        async call() {
          while (locked.isLocked) await new Promise((resolve) => setTimeout(resolve, 10));
          locked.isLocked = true;
          await cutHere();
          locked.isLocked = false;
          return {};
        },
      });
    };
    const report = await crashMatrix(calling(act), { ...served, patience });
    expect(places(report.unexpected)).toEqual(["1.0 act: at cutHere()"]);
    expect(report.unexpected[0]?.found).toContain("nothing has happened");
  });
});

describe("an agent that fails where nobody dies", () => {
  const broken = (service: Service) =>
    agent({
      name: "broken",
      async run(ctx) {
        await ctx.once("pay", { effect: "idempotent" }, async () => {
          if (!service.did("paid")) await service.does("paid");
        });
        throw new TypeError("no such thing");
      },
    }) as Agent;

  test("is found without a cut, with the cause: its plays would all fail alike", async () => {
    const report = await crashMatrix(broken, served);
    expect([report.ok, report.cuts]).toEqual([false, 0]);
    expect(report.unexpected).toMatchObject([{ cut: [], what: "the run", expected: "does not fail" }]);
    expect(report.unexpected[0]?.found).toMatch(/^it fails: .*reported: TypeError: no such thing$/);
  });

  test("is cut everywhere where that is its story", async () => {
    const report = await crashMatrix(broken, { ...served, mayFail: true });
    report.assertNoFindings();
    expect(report.effects).toEqual(["paid"]);
  });
});

describe("a script that does not fit", () => {
  test("names the question that nobody answers", async () => {
    const asks = (service: Service) =>
      desk([refund(service)], [calls(["refund", { orderId: "1", cents: 9_000 }]), done]);
    await expect(crashMatrix(asks, served)).rejects.toThrow(MatrixScriptError);
    await expect(crashMatrix(asks, served)).rejects.toThrow(/"Refund 90 EUR\?" \(approval, tool `refund`\)/);
  });

  test("names the signal that nobody sends", async () => {
    const waits = () => agent({ name: "waits", run: (ctx) => ctx.receive("paid") }) as Agent;
    const report = await crashMatrix(waits, { ...served, patience: 200 });
    expect(report.unexpected[0]?.found).toMatch(
      /nothing has happened .*waits for the signal "paid": add what is sent to the script's `signals`/,
    );
  });

  test("is a finding where only a cut shows it", async () => {
    const report = await crashMatrix(
      (service: Service) => desk([mail(service)], [calls(["mail", { to: "bob" }]), done]),
      served,
    );
    expect(report.unexpected[0]?.found).toMatch(/unknown-write, tool `mail`/);
  });

  test("whoever says that a write was not done while it still runs looks again when it has ended, and lays aside what it has answered itself", async () => {
    for (const lands of [true, false]) {
      const runs = new Map<Service, number>();
      const late = (service: Service) =>
        tool({
          ...{
            name: "late",
            description: "Outruns its time.",
            effect: "write",
            settle: 0,
            timeout: 20,
            input: orderId,
          },
          async call({ orderId: id }, { signal }) {
            const run = (runs.get(service) ?? 0) + 1;
            runs.set(service, run);
            if (run === 1) {
              await new Promise((resolve) => signal.addEventListener("abort", resolve));
              for (let i = 0; i < 100; i++) await new Promise((resolve) => setImmediate(resolve));
              if (!lands) throw new Error("connection reset");
            }
            service.done.push(`late ${id}`);
            return {};
          },
        });
      const no = { kind: "unknown-write", reply: { status: "resolved", payload: { did: "no" } } } as const;
      const report = await crashMatrix(
        (service: Service) => desk([late(service)], [calls(["late", { orderId: "1" }]), done]),
        { ...served, script: { answers: [no] }, cuts: () => false },
      );
      expect(report.unexpected).toEqual([]);
      // Once in its own time, or once again when a human could say that it was not done.
      expect(new Set(runs.values())).toEqual(new Set([lands ? 1 : 2]));
    }
  });

  test("an answer that the server refuses is an error with its words", async () => {
    const report = crashMatrix(
      (service: Service) => desk([refund(service)], [calls(["refund", { orderId: "1", cents: 9_000 }]), done]),
      { ...served, script: { answers: [{ reply: { status: "resolved", payload: { approve: true } } }] } },
    );
    await expect(report).rejects.toThrow(/422.*ANSWER_INVALID/);
  });
});

test("a mark outside of a matrix does nothing", async () => {
  await expect(cutHere("anywhere")).resolves.toBeUndefined();
});
