export * from "./protocol/json.ts";
