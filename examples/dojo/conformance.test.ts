/** The conformance kit finds nothing wrong with any of the features. */
import { serve } from "perdure";
import { checkProducer } from "perdure/testing";
import { expect, it, onTestFinished } from "vitest";
import { dojo, features } from "./dojo.ts";

it.each(features.map(({ name }) => name))("%s conforms to the protocol", async (name) => {
  const server = await serve(dojo({ delayMs: 0 }), { port: 0 });
  onTestFinished(() => server.close());
  const report = await checkProducer(`${server.url}/${name}`);
  expect(report.findings, report.table()).toEqual([]);
  // Else it would have found nothing wrong because it saw nothing.
  expect(report.notExercised.length).toBeLessThan(60);
});
