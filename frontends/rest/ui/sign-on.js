// Signs in at an OpenID provider: the code flow with PKCE, as a public client. Tokens stay in memory; what the way there and back
// needs waits in the session's storage. Must not know the page, nor what a token is good for.

const LEFT = "stanzaq.sign-on";
// A token is renewed before its last third or its last ten seconds, whichever is shorter.
const EARLY_MS = 10_000;

let provider = null;
let tokens = null;
let renewal = null;
// Grows when tokens are forgotten: what was asked for before that is not kept.
let visit = 0;

const here = () => location.origin + location.pathname;
const encoded = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
const random = () => encoded(crypto.getRandomValues(new Uint8Array(32)));

async function read(url, more) {
  const answer = await fetch(url, {credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(15_000), ...more});
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error_description || said.error || `the provider answered ${answer.status}`);
  return said;
}

// Read who signs people in here, once; returns the provider's host, or nothing if people sign in to the service itself.
export async function offered() {
  if (provider === null) provider = await read(new URL("sign-on", document.baseURI));
  return provider.issuer ? new URL(provider.issuer).host : "";
}

async function discovered() {
  if (!await offered()) throw new Error("this service has no provider");
  if (!provider.found) {
    const found = await read(`${provider.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
    if (found.issuer !== provider.issuer) throw new Error(`the provider calls itself ${found.issuer}`);
    provider.found = found;
  }
  return provider.found;
}

// Leave for the provider, which leads back to this page.
export async function leave() {
  const {authorization_endpoint: there} = await discovered();
  const [verifier, state] = [random(), random()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  sessionStorage.setItem(LEFT, JSON.stringify({verifier, state, hash: location.hash}));
  const asked = {
    client_id: provider.client, scope: provider.scope, redirect_uri: here(), state,
    // In the fragment, which no server and no log sees.
    response_type: "code", response_mode: "fragment",
    code_challenge: encoded(new Uint8Array(digest)), code_challenge_method: "S256",
  };
  location.assign(`${there}${there.includes("?") ? "&" : "?"}${new URLSearchParams(asked)}`);
}

// Come back from the provider, if this is what the page was loaded for; throws what the provider or its answer has against it.
export async function arrive() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (!said.has("state") || !(said.has("code") || said.has("error"))) return;
  const left = JSON.parse(sessionStorage.getItem(LEFT) ?? "{}");
  sessionStorage.removeItem(LEFT);
  history.replaceState(null, "", `${here()}${left.hash ?? ""}`);
  if (said.get("state") !== left.state) throw new Error("the answer belongs to another sign-on");
  if (said.has("error")) throw new Error(said.get("error_description") || said.get("error"));
  const {issuer} = await discovered();
  if (said.has("iss") && said.get("iss") !== issuer) throw new Error("the answer is another provider's");
  await exchange({grant_type: "authorization_code", code: said.get("code"), code_verifier: left.verifier, redirect_uri: here()});
}

async function exchange(given) {
  const now = visit;
  const {token_endpoint: there} = await discovered();
  const said = await read(there, {method: "POST", body: new URLSearchParams({client_id: provider.client, ...given})});
  if (now !== visit) return;
  const lasts = (said.expires_in ?? Infinity) * 1000;
  // A renewal need not give all of them again.
  tokens = {...tokens, ...said, renewed: Date.now() + lasts - Math.min(EARLY_MS, lasts / 3)};
}

export function signedOn() {
  return tokens !== null;
}

// The token of now. One that cannot be renewed is used until the service refuses it.
export async function token() {
  if (tokens.refresh_token && Date.now() >= tokens.renewed) {
    renewal ??= exchange({grant_type: "refresh_token", refresh_token: tokens.refresh_token})
      .catch(() => { if (tokens) delete tokens.refresh_token; })
      .finally(() => { renewal = null; });
    await renewal;
  }
  return tokens?.access_token ?? "";
}

export function forget() {
  tokens = null;
  visit += 1;
}

// Sign out at the provider too, if it can; it leads back to this page.
export async function signOff() {
  const hint = tokens?.id_token;
  forget();
  const {end_session_endpoint: there} = await discovered();
  if (!there) return;
  const asked = {client_id: provider.client, post_logout_redirect_uri: here(), ...(hint && {id_token_hint: hint})};
  location.assign(`${there}${there.includes("?") ? "&" : "?"}${new URLSearchParams(asked)}`);
}
