import process from "node:process";
import { styleText } from "node:util";

const isColourful = process.stdout.isTTY === true && !process.env.NO_COLOR && process.env.TERM !== "dumb";

function style(format: Parameters<typeof styleText>[0]): (text: string) => string {
  return (text) => (isColourful ? styleText(format, text) : text);
}
export const bold = style("bold");
export const dim = style("dim");
export const red = style("red");
export const green = style("green");

let isInLine = false;

/** A part of a line, as it arrives. {@link print} begins a new one. */
export function write(text: string): void {
  isInLine = true;
  process.stdout.write(text);
}

/** A line of its own, whatever was being written. */
export function print(text = ""): void {
  endLine();
  process.stdout.write(`${text}\n`);
}

export function endLine(): void {
  if (isInLine) process.stdout.write("\n");
  isInLine = false;
}

/** Who says or does what, in two columns. */
export function label(word: string): string {
  return `  ${dim(word.padEnd(10))} `;
}

export function shortened(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
