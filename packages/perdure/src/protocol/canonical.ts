import canonicalize from "canonicalize";
import { isJsonObject, type Json } from "./json.ts";

/**
 * The one text of a JSON value, whatever the order of its keys (RFC 8785): what is hashed, and what keys are made of.
 *
 * A lone surrogate has no UTF-8, so RFC 8785 refuses it. A model that wrote one must not lose its call for that: each becomes U+FFFD here,
 * and only here, as it does when the text is sent.
 */
export function canonicalJson(value: Json): string {
  // A Json value always has a text; the function's `undefined` is for what JSON cannot hold.
  return canonicalize(wellFormed(value)) ?? "null";
}

function wellFormed(value: Json): Json {
  if (typeof value === "string") return value.replace(/\p{Cs}/gu, "\uFFFD");
  if (Array.isArray(value)) return value.map(wellFormed);
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [wellFormed(key), wellFormed(member)]));
}
