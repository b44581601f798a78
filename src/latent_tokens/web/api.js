"use strict";

const GONE = "The server does not answer. Start it again with: latent-tokens serve";
const PATIENCE = 3; // times that a busy server is asked again

/** What the person is told in one line. */
class Fault extends Error {}

/** The server's answer. Throws Fault with its one line, or where it does not answer; a busy server is asked again when it says. */
async function ask(path, options = {}, patience = PATIENCE) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Fault(GONE);
  }
  if (response.ok) return response;
  if (response.status === 429 && patience > 0) {
    const seconds = Math.min(Number(response.headers.get("Retry-After")) || 1, 5);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    options.signal?.throwIfAborted();
    return ask(path, options, patience - 1);
  }
  const body = await response.json().catch(() => ({}));
  throw new Fault(typeof body.detail === "string" ? body.detail : `The server refuses this (${response.status}).`);
}

const get = async (path) => (await ask(path)).json();

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

/** The server-sent events of a path as [name, data], up to and with `end`. Throws Fault for a `fault`, or where they break off. */
async function* events(path, signal) {
  const response = await ask(path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw error.name === "AbortError" ? error : new Fault(GONE);
      });
      if (done) throw new Fault("The server stopped in the middle of its answer.");
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const [name, data] = readEvent(part);
        if (name === "fault") throw new Fault(data.detail);
        if (name) yield [name, data];
        if (name === "end") return;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** [name, data] of one event; [null, null] for a comment that keeps the line open. */
function readEvent(part) {
  const lines = part.split(/\r?\n/);
  const all = (field) => lines.filter((line) => line.startsWith(field)).map((line) => line.slice(field.length).trim());
  const data = all("data:").join("\n");
  return data ? [all("event:")[0] ?? "message", JSON.parse(data)] : [null, null];
}

/** `values` as a query string. */
const query = (values) => new URLSearchParams(values).toString();
