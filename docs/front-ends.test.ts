import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));

it("the runner on docs/front-ends.md is the one that `npm run front-ends` plays", () => {
  const page = readFileSync(`${root}docs/front-ends.md`, "utf8");
  const shown = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
  expect(shown).toContain(readFileSync(`${root}campaigns/front-ends/copilotkit/perdure-runner.mjs`, "utf8"));
});
