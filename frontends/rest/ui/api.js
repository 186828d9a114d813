// The door's API: who asks, what is answered, what is refused. Must not know the page.

// A refusal, as application/problem+json tells it; status 0: nobody answered.
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// In memory alone: whoever closes the page is signed out.
let authorization = "";

export function signIn({jid, password, token}) {
  const bytes = new TextEncoder().encode(`${jid}:${password}`);
  authorization = token ? `Bearer ${token}` : `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

export function signOut() {
  authorization = "";
}

export function signedIn() {
  return authorization !== "";
}

export async function ask(path, {method = "GET", body} = {}) {
  const headers = {Accept: "application/json"};
  if (authorization) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path.replace(/^\//, ""), document.baseURI), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      // The browser is to ask for no credentials, and to send none that it remembers: the page asks itself.
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new Refusal(0, "The service does not answer.");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, said.detail || `The service answered ${answer.status}.`);
  return said;
}

// The path of something of a queue; a name that has empty steps or dots for steps goes as one segment.
export function path(root, name) {
  const steps = name.split("/");
  const odd = steps.some((step) => ["", ".", ".."].includes(step));
  return `${root}/${odd ? encodeURIComponent(name) : steps.map(encodeURIComponent).join("/")}`;
}
