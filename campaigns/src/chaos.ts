import process from "node:process";
import { command } from "./command.ts";

process.exitCode = await command("chaos");
