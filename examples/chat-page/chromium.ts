import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** Where a Chromium is: `PERDURE_CHROMIUM`, or the first on the path. */
export function chromium(): string | undefined {
  const { PERDURE_CHROMIUM, PATH = "" } = process.env;
  const onPath = PATH.split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name)));
  return [...(PERDURE_CHROMIUM ? [PERDURE_CHROMIUM] : []), ...onPath].find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
