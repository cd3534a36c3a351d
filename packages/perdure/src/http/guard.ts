import { problem } from "./problem.ts";

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** Whether a host name, without its port, is this machine's own. */
export function isLoopback(hostname: string): boolean {
  return LOOPBACK.test(hostname);
}

/**
 * What is refused before anything else is looked at.
 *
 * Without an `authorize` hook only loopback is served: a page that a browser has open elsewhere (foreign Origin), or a name that was
 * rebound to 127.0.0.1 (foreign Host), must not drive somebody's agent.
 *
 * @returns the refusal, or undefined
 */
export function refuseForeign(
  request: Request,
  options: { readonly isOpen: boolean; readonly origins: readonly string[] },
): Response | undefined {
  const url = new URL(request.url);
  if (!options.isOpen && !isLoopback(url.hostname)) {
    return problem(
      403,
      "FOREIGN_HOST",
      `host ${url.host} is not loopback: give createRuntime an authorize hook to serve others`,
    );
  }
  const origin = request.headers.get("origin");
  if (origin === null || options.origins.includes(origin) || options.origins.includes("*")) return undefined;
  const isSame = URL.canParse(origin) && new URL(origin).host === url.host;
  if (isSame || options.isOpen) return undefined;
  return problem(403, "FOREIGN_ORIGIN", `origin ${origin} is not allowed: name it in createRuntime's cors.origins`);
}
