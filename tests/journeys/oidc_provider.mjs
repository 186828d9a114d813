// An OpenID provider for the page: `oidc-provider`, with its own forms for logging in. Arguments: port, address of the page, and a
// file that says what the next tokens are: {"roles": [...], "seconds": N, "closed": bool}, read anew for each.

import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [modules, port, page, file] = process.argv.slice(2);
const {default: Provider} = await import(pathToFileURL(createRequire(`${modules}/`).resolve("oidc-provider")));
const next = () => JSON.parse(readFileSync(file));
const CLOCKS_DIFFER_BY = 10;

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "stanzaq-page", application_type: "native", token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"], response_types: ["code"],
    redirect_uris: [page], post_logout_redirect_uris: [page],
  }],
  clientBasedCORS: () => true,
  findAccount: (_context, id) => ({accountId: id, claims: () => ({sub: id})}),
  issueRefreshToken: () => true,
  extraTokenClaims: () => ({roles: next().roles}),
  ttl: {AccessToken: () => next().seconds},
  features: {
    resourceIndicators: {
      enabled: true, defaultResource: () => "urn:stanzaq", useGrantedResource: () => true,
      getResourceServerInfo: () => ({scope: "openid", audience: "stanzaq", accessTokenFormat: "jwt"}),
    },
  },
  formats: {
    customizers: {
      // The service lets clocks differ: it refuses the token a second after its end.
      jwt: (_context, _token, {payload}) => { payload.exp = payload.iat + next().seconds + 1 - CLOCKS_DIFFER_BY; },
    },
  },
});
provider.use((context, go) => {
  if (context.path === "/token" && next().closed) context.throw(400, "closed");
  return go();
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
