import process from "node:process";
import { serveUntilKilled } from "../dying-server.ts";
import { deskOf } from "./desk.ts";

const { DESK_FOLDER = ".", DESK_VERSION = "0" } = process.env;
await serveUntilKilled((world) => [deskOf({ ...world, folder: DESK_FOLDER, version: Number(DESK_VERSION) })]);
