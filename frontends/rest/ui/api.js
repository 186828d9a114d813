// The client of the HTTP API: credentials, requests, replies and refusals. Must not know the page.

import {forget, signedOn, token as currentToken} from "./sign-on.js";

// A refusal, read from application/problem+json; status 0 means no answer.
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const SILENT = "The service does not answer.";

// Only in memory: closing the page signs the user out.
let authorization = "";

export function signIn({jid, password, token}) {
  forget();
  const bytes = new TextEncoder().encode(`${jid}:${password}`);
  authorization = token ? `Bearer ${token}` : `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

export function signOut() {
  authorization = "";
  forget();
}

export function signedIn() {
  return authorization !== "" || signedOn();
}

export async function ask(path, {method = "GET", body} = {}) {
  const headers = {Accept: "application/json"};
  const given = signedOn() ? `Bearer ${await currentToken()}` : authorization;
  if (given) headers.Authorization = given;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path.replace(/^\//, ""), document.baseURI), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      // The browser must neither ask for credentials nor send remembered ones: the page asks for them itself.
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new Refusal(0, SILENT);
  }
  if (answer.status === 204) return {};
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refusal(answer.status, said?.detail || `The service answered ${answer.status}.`);
  // Half an answer is none, and neither is a page of whatever is in between.
  if (said === null) throw new Refusal(0, SILENT);
  return said;
}

// A segment of a path. Browsers take dots alone for a step in the tree, even if they are encoded.
export function segment(name) {
  return [".", ".."].includes(name) ? `=${name}` : encodeURIComponent(name);
}

// The path of a queue's resource. A name with empty or dot segments is sent as one segment.
export function path(root, name) {
  const steps = name.split("/");
  const odd = steps.some((step) => ["", ".", ".."].includes(step));
  return `${root}/${odd ? segment(name) : steps.map(encodeURIComponent).join("/")}`;
}
