/** Requests to the server of the page. */

const GONE = "The server does not answer. Start it again with: latent-tokens serve";
const MAX_RETRIES = 3; // of a request to a busy server

/** An error that is shown to the person in one line. */
export class Fault extends Error {}

/**
 * Return the response. A busy server is asked again after the time that it names.
 *
 * @param {string} path
 * @param {RequestInit} [options]
 * @param {number} [retries]
 * @returns {Promise<Response>}
 * @throws {Fault} the server's error in one line
 */
async function request(path, options = {}, retries = MAX_RETRIES) {
  const response = await fetch(path, options).catch(goneUnlessAborted);
  if (response.ok) return response;
  if (response.status === 429 && retries > 0) {
    const seconds = Math.min(Number(response.headers.get("Retry-After")) || 1, 5);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    options.signal?.throwIfAborted();
    return request(path, options, retries - 1);
  }
  const body = await response.json().catch(() => ({}));
  throw new Fault(
    typeof body.detail === "string" ? body.detail : `The server refuses this (${response.status}).`,
  );
}

/**
 * @param {Error} error
 * @returns {never}
 */
function goneUnlessAborted(error) {
  throw error.name === "AbortError" ? error : new Fault(GONE);
}

/** @param {string} path */
export const get = async (path) => (await request(path)).json();

/**
 * @param {string} path
 * @param {object} body
 */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/**
 * Yield the server-sent events of a path as [name, data], up to and with `end`.
 *
 * @param {string} path
 * @param {AbortSignal} signal
 * @returns {import("./types.js").Events}
 * @throws {Fault} for a `fault`, or if the events stop before `end`
 */
export async function* events(path, signal) {
  const response = await request(path, { signal, headers: { Accept: "text/event-stream" } });
  if (!response.body) throw new Fault(GONE);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(goneUnlessAborted);
      if (done) throw new Fault("The server stopped in the middle of its answer.");
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop() ?? "";
      for (const part of parts) {
        const event = readEvent(part);
        if (event?.[0] === "fault") throw new Fault(event[1].detail);
        if (event) yield event;
        if (event?.[0] === "end") return;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Return [name, data] of one event, or null for a comment that keeps the connection open.
 *
 * @param {string} part
 * @returns {[string, any] | null}
 */
function readEvent(part) {
  const lines = part.split(/\r?\n/);
  /** @param {string} field */
  const all = (field) =>
    lines.filter((line) => line.startsWith(field)).map((line) => line.slice(field.length).trim());
  const data = all("data:").join("\n");
  return data ? [all("event:")[0] ?? "message", JSON.parse(data)] : null;
}

/**
 * Return values as a query string.
 *
 * @param {object} values
 */
export const query = (values) => new URLSearchParams(Object.entries(values)).toString();
